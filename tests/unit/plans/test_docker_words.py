"""Which options of `docker run` a container on trial may have; all others are refused by name."""

from __future__ import annotations

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans import docker_words, vllm_image

from tests.unit.plans.test_host_folders import OF_ITS_OWN, OF_THE_HOST

LOCAL = "type=volume,volume-driver=local,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/,dst=/h"


def refused(*words: str) -> list[str]:
    given = {"vllm_image_base": "vllm/vllm-openai:v0.33.0", "vllm_image_model": "/srv/model"}
    refusals = vllm_image.plan(View("spark-a", {}, given | {"vllm_image_docker_options": list(words)})).refusals
    assert all(", which gives the host" in text and "--shm-size" in text for text in refusals)
    return [text.partition(" holds ")[2].partition(", which gives")[0] for text in refusals]


@pytest.mark.parametrize(
    "words",
    [
        ["--device", "/dev:/dev"], ["--device", "//dev/sda"], ["--device=/./dev/sda"], ["--device", "/dev"],
        ["--device", "/dev/nvidia0/../sda"], ["--device", "/dev/nvidia0:/dev/sda"], ["--device=vendor.com/disk=all"],
        ["--volume", "/.:/h"], ["--volume", "/./etc:/x"], ["--volume=//etc:/x"], ["-v", "..:/h"], ["-v", "name:/h"],
        ["-itv", "/:/h"], ["-v=/etc:/h"], ["-v", "/srv/x:/h:rw,rslave"], ["-v", "/srv/x"], ["-v", "/srv/../etc:/h"],
        ["-v", "/srv:/h"], ["-v", "/lib/systemd:/r"], ["-v", "/var/spool/cron:/r"], ["-v", "/var/lib/gb10-fleet:/x"],
        ["--mount", "type=bind,SRC=/,dst=/h"], ["--mount", 'type=bind,"source=/",target=/h'], ["--mount", LOCAL],
        ["--mount", "type=bind,src=/a,src=/,dst=/h"], ["--mount=type=bind,source=/srv/x,target=/e"],
        ["--use-api-socket"], ["--entrypoint", "sh"], ["-d"], ["--detach"], ["--rm=false"], ["--init=false"],
        ["--label-file", "/etc/shadow"], ["--cidfile", "/etc/cron.d/x"], ["--runtime", "x"], ["--group-add", "disk"],
        ["--network", "host"], ["--net=host"], ["--publish", "0.0.0.0:80:80"], ["--oom-score-adj", "-1000"],
        ["--ipc", "container:x"], ["--shm-size", "all"], ["--memory", "-1"], ["--gpus", "all,capabilities=x"],
        ["--ulimit", "files=1"], ["--ulimit", f"nofile={2**63}"], ["--ulimit", "nofile=2:1"], ["--ulimit", "core"],
        ["--shm-size"], ["--volume"], ["-v"], ["--"], ["-"], [""], ["-x"], ["-it="], ["evil/image"],
    ],
)  # fmt: skip
def test_it_is_refused_by_name(words: list[str]) -> None:
    (said,) = refused(*words)
    assert said.startswith(words[0])
    assert " ".join(words) == said or words == ["--oom-score-adj", "-1000"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env-like", "--rm", "evil/image"], "--env-like, evil/image"),
        (["--shm-size", "--volume", "/:/h"], "--shm-size --volume, /:/h"),
        (["--rm", "evil/image", "--gpus", "all"], "evil/image"),
        (["--shm-size", "8g", "sh", "-c", "id"], "sh, -c id"),
        (["--device=/dev/sda", "--ipc=host", "--device=/dev/sda"], "--device=/dev/sda"),
    ],
)
def test_each_word_is_read_as_docker_reads_it(words: list[str], said: str) -> None:
    assert refused(*words) == [said]


@pytest.mark.parametrize(
    "words",
    [
        ["--gpus", "all"], ["--gpus=device=0"], ["--device", "nvidia.com/gpu=all"], ["--device=/dev/nvidia-uvm"],
        ["--device", "/dev/infiniband/uverbs0"], ["--ulimit", "nofile=1048576:1048576"], ["--ulimit", "memlock=-1"],
        ["--ulimit", "memlock=-1:-1", "--ulimit=stack=67108864"], ["--ulimit", "nofile=1024:-1"],
        ["--shm-size", "8g"], ["--shm-size=16G"], ["--memory", "64g", "--memory-swap", "-1", "--cpus", "8.5"],
        ["-m", "64g"], ["--cpuset-cpus", "0-3,8"], ["--pids-limit=4096"], ["--init", "--rm", "--read-only", "-it"],
        ["-v/srv/x:/x:ro"], ["-v=/srv/x:/x"], ["-itv", "/srv/x:/x"], ["--ipc=host"],
    ],
)  # fmt: skip
def test_what_a_trial_may_need_is_taken(words: list[str]) -> None:
    assert refused(*words) == []


def test_folders_are_those_of_the_one_definition() -> None:
    assert [path for path in OF_THE_HOST if docker_words.refused(["-v", f"{path}:/x:ro"]) == []] == []
    assert [path for path in OF_ITS_OWN if docker_words.refused(["-v", f"{path}:/x:ro"])] == []
