"""What the variables of the role vllm_image come down to, and what of them is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import vllm_image
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm import refusals as vllm_refusals
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.vllm.settings import VllmSettings

from tests.unit.plans.test_host_folders import OF_ITS_OWN, OF_THE_HOST

GIVEN: dict[str, Any] = {"vllm_image_base": "vllm/vllm-openai:v0.33.0", "vllm_image_model": "/srv/model"}
WHEEL = {"path": "/srv/x-1.0-py3-none-any.whl", "sha256": "a" * 64}


def planned(**variables: Any) -> vllm_image.VllmImagePlan:
    return vllm_image.plan(View("spark-a", {}, {**GIVEN, **variables}))


def test_it_plans_for_its_own_task_only() -> None:
    assert plan.serves_tasks_only("vllm_image")
    assert planned().refusals == ()
    assert planned().platform == "linux/arm64"


def test_what_serves_in_a_trial_is_left_as_it_is() -> None:
    options = ["--device", "nvidia.com/gpu=all", "--gpus", "all", "--ipc=host", "--shm-size", "8g", "--rm"]
    base = "localhost:5000/a_b/vllm-openai:v0.33.0@sha256:" + "0" * 64
    given = {"vllm_image_docker_options": options, "vllm_image_base": base, "vllm_image_model": "/srv/a small model/"}
    assert planned(**given).refusals == ()


@pytest.mark.parametrize("architectures", ["", "12.0", "12.0f", "12.1a", "12.0;12.1a+PTX", "8.0 9.0a 12.0+PTX", "10.3"])
def test_architectures_are_taken_as_pytorch_writes_them(architectures: str) -> None:
    assert planned(vllm_image_architectures=architectures).refusals == ()


def test_a_folder_and_a_gpu_are_no_part_of_the_host() -> None:
    options = [
        "-v",
        "/var/cache/gb10-triton:/root/.triton",
        "--device",
        "/dev/infiniband",
        "--device=/dev/nvidia0",
        "-it",
    ]
    assert planned(vllm_image_docker_options=options).refusals == ()


def test_an_overlay_needs_no_source() -> None:
    assert planned(vllm_image_source="/srv/vllm").look["source"] == "/srv/vllm"
    assert planned(vllm_image_source="/srv/vllm", vllm_image_recipe="overlay").look["source"] == ""


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"vllm_image_base": ""}, "vllm_image_base is empty"),
        ({"vllm_image_model": ""}, "no image serves that was not asked"),
        ({"vllm_image_name": "Mine:1"}, "without tag and digest"),
        ({"vllm_image_port": 0}, "a port is 1 to 65535"),
        ({"vllm_image_ready_timeout": 0}, "vllm_image_ready_timeout is 0"),
        ({"vllm_image_ready_timeout": 10**8}, "Say at most 86400 seconds"),
        ({"vllm_image_jobs": -1}, "0 takes what the memory allows"),
        ({"vllm_image_wheels": [{**WHEEL, "sha256": "abc"}]}, "vllm_image_wheels has the entry"),
        ({"vllm_image_wheels": [{**WHEEL, "path": "x.whl"}]}, "vllm_image_wheels has the entry"),
        ({"vllm_image_wheels": [WHEEL, {"path": "/b/x-1.0-py3-none-any.whl", "sha256": "b" * 64}]}, "names two files"),
        (
            {"vllm_image_patches": [{**WHEEL, "path": "/a/x"}, {**WHEEL, "path": "/b/x"}]},
            "vllm_image_patches names two",
        ),
        *(({"vllm_image_base": base}, "names no image") for base in ("--privileged", "-v", "a\nb", "a b", "a:b\n")),
        *(({"vllm_image_model": model}, "without `:`") for model in ("/m:/etc", "/", "/../etc", "/a,b", "/a\nb", "m")),
        *(
            ({"vllm_image_docker_options": [*words, "HF_TOKEN=x"]}, "sets the environment")
            for words in (["--env=A=B"], ["--env"], ["-e"], ["-eA=B"], ["-ite"], ["--env-file"], ["--env-file=/x"])
        ),
        ({"vllm_image_patches": [{**WHEEL, "path": "/srv/a b.patch"}]}, "vllm_image_patches has the entry"),
        *(
            ({"vllm_image_source": path}, "vllm_image_source is")
            for path in ("-c", "vllm", "/", "/a/../b", "/a\nb", "-")
        ),
        *(
            ({"vllm_image_architectures": text}, "vllm_image_architectures is")
            for text in ("-c", "sm_121", "12", "12.0;", "12.0,12.1", "12.0\n", '12.0" && id #', "12.1z", "12.0 ")
        ),
        *(
            ({"vllm_image_docker_options": words}, f"holds {said}, which gives the host")
            for words, said in (
                (["--privileged"], "--privileged"),
                (["--privileged", "--rm"], "--privileged"),
                (["--privileged=true"], "--privileged=true"),
                (["--pid=host"], "--pid=host"),
                (["--pid", "host"], "--pid host"),
                (["--cap-add=ALL"], "--cap-add=ALL"),
                (["--cap-add", "SYS_ADMIN", "--rm"], "--cap-add SYS_ADMIN"),
                (["--security-opt", "seccomp=unconfined"], "--security-opt seccomp=unconfined"),
                (["-v", "/:/host"], "-v /:/host"),
                (["-v/:/host"], "-v/:/host"),
                (["--volume=/var/run/docker.sock:/s"], "--volume=/var/run/docker.sock:/s"),
                (["--mount", "type=bind,src=/run/docker.sock,dst=/s"], "--mount type=bind,src=/run/docker.sock,dst=/s"),
                (["-itv", "/etc/shadow:/s"], "-itv /etc/shadow:/s"),
                (["-v", "/srv/../etc:/e"], "-v /srv/../etc:/e"),
                (["--device=/dev/sda"], "--device=/dev/sda"),
                (["--userns=host", "--uts=host"], "--userns=host, --uts=host"),
            )
        ),
    ],
)
def test_what_is_refused(variables: dict[str, Any], says: str) -> None:
    (refusal,) = planned(**variables).refusals
    assert says in refusal


@pytest.mark.parametrize("variable", ["vllm_image_model", "vllm_image_source"])
def test_a_folder_of_the_host_is_no_model_and_no_source(variable: str) -> None:
    for path in (*OF_THE_HOST, "/etc", "/etc/", "/home/u/", "/usr/bin/"):
        (refusal,) = planned(**{variable: path}).refusals
        assert f"{variable} is {path!a}" in refusal and "none of the system or of a role" in refusal
    for path in OF_ITS_OWN:
        assert planned(**{variable: path}).refusals == ()


@pytest.mark.parametrize(("tag", "refused"), [("", False), ("candidate-", True), ("refused-", True)])
def test_an_image_that_was_not_accepted_does_not_serve(tag: str, refused: bool) -> None:
    given = {
        "vllm_image": f"gb10-fleet/built:{tag}0123456789ab",
        "vllm_allow_tag": True,
        "vllm_version": "0.33.0",
        "vllm_model": "Qwen/Qwen3-0.6B",
    }
    view = View("spark-a", {}, given)
    found = vllm_refusals._image(view, view.settings(VllmSettings))
    assert ["not accepted" in text for text in found] == ([True] if refused else [])
