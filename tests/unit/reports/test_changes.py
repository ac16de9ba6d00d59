"""The lines that name what a run changed."""

from __future__ import annotations

from typing import Any

from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, output
from ansible_collections.gb10.fleet.plugins.plugin_utils.reports import changes

from tests.support.attacker import tally


def change(resource: str, action: str, detail: str = "", role: str = "docker") -> dict[str, str]:
    return {"role": role, "resource": resource, "action": action, "detail": detail}


MADE = [
    change("file:/etc/a", "create"),
    change("unit:docker.service", "enable", "disabled -> enabled"),
    change("unit:docker.service", "restart", "changed: file:/etc/a"),
    change("sysctl:a.b", "update", "1 -> 2", role="kernel_parameters"),
]
WHOLE = [{"prepared": "the engine's own\n"}]


def test_each_resource_is_one_line_with_host_role_and_what_was_done() -> None:
    assert changes.lines("spark-a", MADE) == [
        "spark-a  docker             file:/etc/a          create",
        "spark-a  docker             unit:docker.service  enable: disabled -> enabled; restart: changed: file:/etc/a",
        "spark-a  kernel_parameters  sysctl:a.b           update: 1 -> 2",
    ]


def test_one_long_path_makes_no_other_line_long() -> None:
    """A file of ours of 100 characters made all lines of a run 150 wide, and a terminal of 80 showed two of each."""
    path = f"file:/usr/local/lib/{'a' * 90}"
    assert changes.lines("spark-a", [*MADE[:1], change(path, "create")]) == [
        "spark-a  docker  file:/etc/a  create",
        f"spark-a  docker  {path}  create",
    ]


def test_what_several_hosts_have_in_common_is_one_line() -> None:
    fleet = {"a": MADE[:1], "b": [*MADE[:1], MADE[3]], "c": [], "d": [change("file:/etc/a", "update", "mode")]}
    assert [(row["hosts"], row["resource"], row["what"]) for row in changes.of_fleet(fleet)] == [
        (["a", "b"], "file:/etc/a", "create"),
        (["b"], "sysctl:a.b", "update: 1 -> 2"),
        (["d"], "file:/etc/a", "update: mode"),
    ]
    assert changes.fleet_lines(fleet, "the report") == [
        "a, b  docker             file:/etc/a  create",
        "b     kernel_parameters  sysctl:a.b   update: 1 -> 2",
        "d     docker             file:/etc/a  update: mode",
    ]


def test_a_terminal_gets_so_many_lines_and_the_way_to_the_others() -> None:
    many = {"a": [change(f"file:/etc/{number}", "create") for number in range(changes.FLEET_LINES + 2)]}
    said = changes.fleet_lines(many, "gb10 report X")
    assert len(said) == changes.FLEET_LINES + 1 and said[-1] == "... and 2 lines more: gb10 report X"


def test_the_diff_is_the_engines_own_only_where_the_operator_asked_for_it() -> None:
    answer: dict[str, Any] = {"changes": MADE[:1], "diff": WHOLE}
    assert changes.diff("spark-a", answer, whole=True) == WHOLE
    assert changes.diff("spark-a", answer, whole=False) == [{"prepared": "spark-a  docker  file:/etc/a  create\n"}]
    assert changes.diff("spark-a", {"changes": [], "diff": WHOLE}, whole=False) == []


def test_a_diff_of_an_engine_that_takes_for_ever_is_not_shown() -> None:
    """Ansible makes it in its main process. A file that is new has nothing to compare, however long it is."""
    long = "x\n" * 3000
    (said,) = changes.diff("spark-a", {"changes": [], "diff": [{"before": long, "after": long}]}, whole=True)
    tally("a host sends a diff that takes for ever", 1, int("before" in said))
    assert "before" not in said and "6000 lines" in said["prepared"]
    new = [{"before": "", "after": long * 100}]
    assert changes.diff("spark-a", {"changes": [], "diff": new}, whole=True) == new


def test_what_a_host_says_does_not_steer_the_terminal() -> None:
    (line,) = changes.lines("spark-a", [change("file:/etc/\x1b[31m", "create")])
    assert "\x1b" not in line and "\\x1b[31m" in line


def test_what_docker_leaves_is_listed_only_where_it_was_removed() -> None:
    known = catalog.load("software")["left_behind"]["value"]
    left = changes.left_behind([change("package:docker-ce", "remove", "29")], known)
    assert any("FORWARD" in text and "reboot" in text for text in left)
    assert changes.left_behind([change("package:docker-ce", "install"), change("file:/a", "remove")], known) == []
    left = changes.left_behind([change("file:/usr/local/sbin/gb10-vllm", "remove")], known)
    assert all(any(name in text for text in left) for name in ("/var/cache/gb10-files", "/root/.ansible_async"))


def test_one_host_crowds_no_other_out() -> None:
    """It has 10,000 changes, and comes first."""
    fleet = {"a": [change(f"file:/x/{number}", "create") for number in range(10_000)]}
    fleet |= {host: [change(f"file:/own/{host}", "update")] for host in ("b", "c")}
    said = changes.fleet_lines(fleet, "the report")
    lost = [host for host in ("b", "c") if not any(f"/own/{host}" in line for line in said)]
    tally("a host's own lines crowd those of the others out", 2, len(lost))
    assert not lost and len(said) == changes.FLEET_LINES + 1 and said[-1] == "... and 9942 lines more: the report"


def test_where_lines_do_not_reach_for_all_hosts_who_says_little_comes_first() -> None:
    few = {f"few-{number}": ["one"] for number in range(3)}
    shown, left = output.shares({"many": ["line"] * 9, **few}, 3)
    assert shown == {"many": [], **few} and left == 9
