from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.engine import (
    ApplyError,
    Document,
    parse_documents,
)
from ansible_collections.gb10.fleet.plugins.module_utils.engine.kinds import KINDS
from ansible_collections.gb10.fleet.plugins.module_utils.engine.resources.common import DocumentError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.kinds import EXAMPLES

if TYPE_CHECKING:
    from tests.support.fake_host import FakeHost

VALID: list[dict[str, Any]] = [
    {"file": "/etc/a.conf", "content": "x\n", "owner": "root", "group": "root", "mode": "0644"},
    {
        "file": "/etc/d.json",
        "merge_json": {"a": {"b": [1]}},
        "default_json": {"c": 1},
        "validate": ["jq", ".", "%s"],
    },
    {"package": "docker-ce", "version": "5:29.1.0-1~ubuntu.24.04~noble", "consent": "docker_allow_restart"},
    {"hold": "driver-set", "match": ["^nvidia-"], "except": ["container"]},
    {"sysctl": "vm.swappiness", "value": 1},
    {"kernel_module": "rdma_cm"},
    {
        "nm_profile": "gb10-enp1s0f0np0",
        "uuid": "6f0c8f5e-8d44-5d0b-9b55-0d9a8b7f0001",
        "interface": "enp1s0f0np0",
        "addresses": ["192.0.2.1/30"],
        "mtu": 9000,
        "consent": "fabric_allow_activation",
    },
    {
        "unit": "docker.service",
        "enabled": True,
        "state": "started",
        "restart_on": ["/etc/d.json", "package:docker-ce"],
        "consent": "docker_allow_restart",
    },
]
VALID += [
    next(iter(found["good"].values())) for kind, found in EXAMPLES.items() if not any(kind in row for row in VALID)
]


def test_every_kind_parses_and_the_engine_adds_what_makes_it_last() -> None:
    document = parse_documents([("demo", VALID)], {"docker_allow_restart": False})
    assert {resource.KIND for resource in document.resources} == set(KINDS) - {"expected"}
    assert [resource.label for resource in document.resources[len(VALID) :]] == [
        "file:/etc/sysctl.d/90-gb10-demo.conf",
        "file:/etc/modules-load.d/gb10-demo.conf",
        "dpkg:database",
    ]


def test_null_counts_as_not_given() -> None:
    assert parse_documents([("demo", [{"package": "bash", "version": None}])], {}).resources[0].label == "package:bash"


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ("text", "resources[0]: expected a mapping"),
        ({}, "resources[0]: expected exactly one of the keys file, package"),
        ({"file": "/a", "package": "b"}, "found file and package"),
        ({"dpkg": "database"}, "found none"),
        ({"file": "etc/a", "content": ""}, "resources[0].file: expected an absolute path"),
        ({"file": "/etc/../a", "content": ""}, "resources[0].file: expected a path without '..'"),
        ({"file": "/etc/a/", "content": ""}, "resources[0].file"),
        ({"file": "/etc/a\nb", "content": ""}, "resources[0].file: expected an absolute path, found control"),
        ({"file": "/etc/a\0b", "content": ""}, "resources[0].file"),
        ({"file": "/etc/a"}, "resources[0].content: a present file needs exactly one of"),
        ({"file": "/etc/a", "content": "", "merge_json": {"a": 1}}, "resources[0].content"),
        ({"file": "/etc/a", "content": "a\0"}, "resources[0].content: the text holds a NUL"),
        ({"file": "/etc/a", "content": "\udcff"}, "resources[0].content"),
        ({"file": "/etc/a", "content": "x" * 2_000_000}, "resources[0].content: the text is longer"),
        ({"file": "/etc/a", "content": "", "mode": 420}, "resources[0].mode: expected a quoted octal mode"),
        ({"file": "/etc/a", "content": "", "mode": "0999"}, "resources[0].mode"),
        ({"file": "/etc/a", "content": "", "owner": "-x"}, "resources[0].owner"),
        ({"file": "/etc/a", "content": "", "moed": "0644"}, "resources[0].moed: a file resource has no such key"),
        ({"file": "/etc/a", "content": "", "validate": ["true"]}, "resources[0].validate"),
        ({"file": "/etc/a", "merge_json": {1: 2}}, "resources[0].merge_json: is not JSON"),
        ({"file": "/etc/a", "merge_json": {"a": float("nan")}}, "resources[0].merge_json: is not JSON"),
        ({"file": "/etc/a", "default_json": {"a": object()}}, "resources[0].default_json: is not JSON"),
        ({"file": "/etc/a", "default_json": {}}, "resources[0].default_json: expected a mapping with at least one"),
        ({"file": "/etc/a", "content": "", "default_json": {"a": 1}}, "resources[0].content"),
        ({"file": "/etc/a", "state": "absent", "default_json": {"a": 1}}, "resources[0].content: state absent"),
        ({"file": "/etc/a", "content": "", "secret": "yes"}, "resources[0].secret: expected true or false"),
        ({"file": "/etc/a", "state": "directory", "secret": True}, "resources[0].secret: a directory has no content"),
        ({"package": "bash", "consent": 1}, "resources[0].consent"),
        ({"package": "--reinstall"}, "resources[0].package"),
        ({"package": "bash", "version": "1 2"}, "resources[0].version"),
        ({"package": "bash", "version": "1", "state": "absent"}, "resources[0].version"),
        ({"package": "bash", "state": "latest"}, "resources[0].state: expected one of present, absent, found 'latest'"),
        ({"hold": "x1", "match": ["("]}, "resources[0].match[0]: is no regular expression"),
        ({"hold": "x1", "match": []}, "resources[0].match: expected at least one"),
        ({"hold": "x1", "except": ["a"]}, "resources[0].except: needs match"),
        ({"unit": "docker"}, "resources[0].unit: expected the full name"),
        ({"unit": "-x.service"}, "resources[0].unit"),
        ({"unit": "x.service", "enabled": "yes"}, "resources[0].enabled: expected true or false"),
        ({"unit": "x.service", "restart_on": ["/etc/a"]}, "resources[0].restart_on[0]: file:/etc/a is not declared"),
        ({"unit": "x.service", "reload_on": ["/etc/a"]}, "resources[0].reload_on[0]: file:/etc/a is not declared"),
        ({"unit": "x.service", "consent": "{{ x }}"}, "resources[0].consent"),
        ({"sysctl": "swappiness", "value": 1}, "resources[0].sysctl"),
        ({"sysctl": "vm.//.swappiness", "value": 1}, "resources[0].sysctl"),
        ({"sysctl": "vm.swappiness"}, "resources[0].value: expected a value, found nothing"),
        ({"sysctl": "vm.swappiness", "value": "1\n2"}, "resources[0].value"),
        ({"sysctl": "vm.swappiness", "value": True}, "resources[0].value"),
        (
            {"sysctl": "vm.swappiness", "value": 2**64},
            "resources[0].value: expected a number from -9223372036854775808",
        ),
        ({"file": "/etc/a", "content": "", "owner": "4294967295"}, "owner: expected a number from 0 to 4294967294"),
        ({**VALID[6], "addresses": ["192.0.2.1/33"]}, "addresses[0]: expected a number from 0 to 32, found 33"),
        ({**VALID[6], "peers": ["192.0.2.256"]}, "peers[0]: expected a number from 0 to 255, found 256"),
        ({"kernel_module": "../x"}, "resources[0].kernel_module"),
        ({**VALID[6], "mtu": "9000"}, "resources[0].mtu: expected a number from 576 to 65535, found '9000'"),
        ({**VALID[6], "addresses": ["192.0.2.1"]}, "resources[0].addresses[0]"),
        ({**VALID[6], "addresses": ["192.0.2.300/24"]}, "resources[0].addresses[0]"),
        ({**VALID[6], "addresses": []}, "resources[0].addresses: expected at least one"),
        ({**VALID[6], "uuid": None}, "resources[0].uuid: is required"),
        ({**VALID[6], "consent": None}, "resources[0].consent: is required"),
    ],
)
def test_a_wrong_field_is_named(resource: Any, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_documents([("demo", [resource])], {})
    assert message in str(caught.value)


def test_a_refused_secret_is_not_quoted() -> None:
    for wrong in ({"merge_json": "hunter2"}, {"default_json": ["hunter2"]}, {"content": ["hunter2"]}):
        with pytest.raises(DocumentError) as caught:
            parse_documents([("demo", [{"file": "/etc/a", "secret": True, **wrong}])], {})
        assert "hunter2" not in str(caught.value)


def test_twice_the_same_and_late_inputs_are_refused() -> None:
    twice = [{"package": "bash"}, {"package": "bash"}]
    with pytest.raises(DocumentError, match=r"resources\[1\].package: package:bash is declared by resources\[0\]"):
        parse_documents([("demo", twice)], {})
    late = [{"unit": "x.service", "restart_on": ["/etc/a"]}, {"file": "/etc/a", "content": ""}]
    with pytest.raises(DocumentError, match="is not declared before the unit"):
        parse_documents([("demo", late)], {})
    rival = {**VALID[6], "nm_profile": "other", "uuid": "6f0c8f5e-8d44-5d0b-9b55-0d9a8b7f0002"}
    with pytest.raises(DocumentError, match="interface enp1s0f0np0 is declared by"):
        parse_documents([("demo", [VALID[6], rival])], {})


@pytest.mark.parametrize(
    ("role", "resources", "consents"),
    [("../x", [], {}), (None, [], {}), ("demo", {}, {}), ("demo", [], []), ("demo", [], {"a": "yes"})],
)
def test_wrong_frames_are_refused(role: Any, resources: Any, consents: Any) -> None:
    with pytest.raises(DocumentError):
        parse_documents([(role, resources)], consents)


HOSTILE = st.sampled_from(
    [
        "",
        "\n",
        "a\nb",
        "\0",
        "--help",
        "-x",
        "{{ x }}",
        "../../etc",
        "/",
        "//",
        "a b",
        "\udcff",
        "é",
        "x" * 5000,
        "%s",
        "(",
    ]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | HOSTILE | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted({key for resource in VALID for key in resource} | {"template", "replace_foreign"})


@settings(max_examples=300)
@given(st.sampled_from(VALID), st.dictionaries(st.sampled_from(KEYS) | st.text(string.printable, max_size=5), JUNK))
def test_no_junk_in_any_field_gets_further_than_a_document_error(base: dict[str, Any], junk: dict[str, Any]) -> None:
    try:
        document = parse_documents([("demo", [{**base, **junk}])], {})
    except DocumentError as error:
        assert str(error).isprintable()  # an error message must not carry what it refuses into a terminal
        assert "resources[0]" in str(error)
    else:
        assert isinstance(document, Document)
        for resource in document.resources:
            assert resource.name.isprintable()


def test_work_goes_in_the_order_of_the_document(host: FakeHost) -> None:
    host.file("/proc/modules", "")
    host.file("/proc/sys/vm/swappiness", "60")

    def modprobe(argv: list[str], stdin: str | None) -> str:
        assert host.path("/etc/first").exists()
        assert not host.path("/etc/last").exists()
        host.file("/proc/modules", "rdma_cm 1\n")
        return ""

    host.on("modprobe", modprobe)
    outcome = host.both(
        [
            {"file": "/etc/first", "content": ""},
            {"sysctl": "vm.swappiness", "value": 1},
            {"kernel_module": "rdma_cm"},
            {"file": "/etc/last", "content": ""},
        ]
    )
    assert [change["resource"].partition(":")[0] for change in outcome.changes] == [
        "file",
        "file",
        "sysctl",
        "file",
        "kernel_module",
        "file",
    ]


def test_what_does_not_hold_after_the_run_is_a_failure(host: FakeHost) -> None:
    host.file("/proc/modules", "")
    host.on("modprobe", "")  # says yes and does nothing
    with pytest.raises(ApplyError, match="kernel_module:rdma_cm: does not hold, it still needs load"):
        host.converge([{"kernel_module": "rdma_cm"}])


def test_every_change_shows_in_the_diff(host: FakeHost) -> None:
    host.file("/proc/modules", "")
    host.file("/etc/a", "old\n")
    outcome = host.converge([{"file": "/etc/a", "content": "new\n"}, {"kernel_module": "rdma_cm"}], check_mode=True)
    assert [sorted(entry) for entry in outcome.diff] == [
        ["after", "after_header", "before", "before_header"],
        ["after", "after_header", "before", "before_header"],
        ["prepared"],
    ]


# --------------------------------------------------------------------------------------------------- several documents


def order(*documents: tuple[str, list[dict[str, Any]]]) -> list[str]:
    document = parse_documents(documents, {})
    return [resource.label for resource in sorted(document.resources, key=lambda resource: resource.index)]


def test_what_roles_declare_first_is_done_first_and_packages_side_by_side() -> None:
    found = order(
        (
            "driver",
            [
                {"file": "/etc/apt/preferences.d/a", "content": ""},
                {"package": "nvidia-utils"},
                {"hold": "nvidia-utils"},
                {"file": "/etc/apt/apt.conf.d/later", "content": ""},
            ],
        ),
        (
            "docker",
            [
                {"package": "ca-certificates"},
                {"file": "/usr/share/keyrings/docker.asc", "content": ""},
                {"package": "docker-ce"},
                {"file": "/etc/docker/daemon.json", "content": "{}"},
                {"package": "perftest"},
            ],
        ),
    )
    assert found == [
        "dpkg:database",
        "file:/etc/apt/preferences.d/a",
        "file:/usr/share/keyrings/docker.asc",
        "package:nvidia-utils",
        "package:ca-certificates",
        "package:docker-ce",
        "hold:nvidia-utils",
        "file:/etc/apt/apt.conf.d/later",
        "file:/etc/docker/daemon.json",
        "package:perftest",
    ]


FOLDER = {"file": "/etc/gb10-fleet", "state": "directory"}


def test_what_two_roles_say_in_the_same_words_is_one_resource_of_both() -> None:
    document = parse_documents([("a", [FOLDER]), ("b", [{**FOLDER, "mode": None}])], {})
    assert [(resource.label, resource.role) for resource in document.resources] == [("file:/etc/gb10-fleet", "a")]
    (claim,) = document.claims
    assert claim.roles == ("a", "b")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (FOLDER, {**FOLDER, "mode": "0700"}, "b.resources[0].file: file:/etc/gb10-fleet is declared by a.resources[0]"),
        ({"sysctl": "vm.a", "value": 1}, {"sysctl": "vm.a", "value": 2}, "b.resources[0].sysctl"),
        (
            VALID[6],
            {**VALID[6], "nm_profile": "other", "uuid": "6f0c8f5e-8d44-5d0b-9b55-0d9a8b7f0002"},
            "interface enp1s0f0np0 is declared by a.resources[0] already",
        ),
        (
            {"file": "/etc/sysctl.d/90-gb10-b.conf", "content": ""},
            {"sysctl": "vm.a", "value": 1},
            "for the role b already",
        ),
    ],
)
def test_two_roles_cannot_want_different_things(first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_documents([("a", [first]), ("b", [second])], {})
    assert message in str(caught.value)


def test_a_restart_is_caused_by_the_own_role_only() -> None:
    unit = {"unit": "x.service", "restart_on": ["/etc/a"]}
    with pytest.raises(DocumentError, match=r"b.resources\[0\].restart_on\[0\]: file:/etc/a is not declared"):
        parse_documents([("a", [{"file": "/etc/a", "content": ""}]), ("b", [unit])], {})


def test_each_role_has_files_of_its_own_for_what_lasts() -> None:
    document = parse_documents(
        [
            ("a", [{"sysctl": "vm.x", "value": 1}]),
            ("b", [{"sysctl": "vm.x", "value": 1}, {"sysctl": "vm.y", "value": 2}]),
        ],
        {},
    )
    derived = {resource.name: resource.role for resource in document.of_kind("file")}
    assert derived == {"/etc/sysctl.d/90-gb10-a.conf": "a", "/etc/sysctl.d/90-gb10-b.conf": "b"}
    assert document.claims[0].label == "file:/etc/sysctl.d/90-gb10-a.conf"


def test_changes_name_their_role(host: FakeHost) -> None:
    outcome = host.converge([{"file": "/etc/a", "content": ""}])
    assert outcome.changes[0]["role"] == "demo"
