"""What must hold for the repository as a whole. Each test names the file and what is wrong with it."""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.module_utils.engine import engine
from ansible_collections.gb10.fleet.plugins.module_utils.system import manifest
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, tags

from scripts.check import SHIPPED, WHEEL_FOLDERS, source_files

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
FILES = source_files()
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
TASK_FILES = [p for p in FILES if p.suffix == ".yml" and p.parts[0] in {"roles", "playbooks", "molecule"}]
TEXT = {".cfg", ".j2", ".md", ".py", ".sh", ".toml", ".yaml", ".yml", ""}


def read(path: Path | str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


# --- layout


def test_the_collection_folder_links_to_every_shipped_folder() -> None:
    folder = ROOT / "collections/ansible_collections/gb10/fleet"
    links = {entry.name: entry for entry in folder.iterdir()}
    assert set(WHEEL_FOLDERS) | {"README.md", "galaxy.yml"} == set(links)
    for name, link in links.items():
        assert link.is_symlink() and link.resolve() == ROOT / name


def test_every_top_level_entry_is_shipped_or_ignored() -> None:
    ignored = read("galaxy.yml")["build_ignore"]
    undecided = {
        path.parts[0]
        for path in FILES
        if path.parts[0] not in SHIPPED | {"galaxy.yml"}
        and not any(fnmatch.fnmatch(path.parts[0], pattern) for pattern in ignored)
    }
    assert not undecided, f"neither in SHIPPED (scripts/check.py) nor in build_ignore (galaxy.yml): {undecided}"


def test_nothing_shipped_is_ignored() -> None:
    ignored = read("galaxy.yml")["build_ignore"]
    assert not [name for name in SHIPPED if any(fnmatch.fnmatch(name, pattern) for pattern in ignored)]


def test_one_version() -> None:
    """galaxy.yml has it; the wheel's build reads it there, and no other place names one."""
    project = tomllib.loads(text(Path("pyproject.toml")))
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    source = project["tool"]["hatch"]["version"]
    found = re.search(source["pattern"], text(Path(source["path"])))
    assert found and found["version"] == read("galaxy.yml")["version"]


def test_ranges_hold_in_both_ansible_bundles() -> None:
    """ansible.posix of the newest bundle for Python 3.11 and of the newest for 3.13."""
    from packaging.specifiers import SpecifierSet

    (posix,) = read("benchmarks/requirements.yml")["collections"]
    assert posix["name"] == "ansible.posix"
    for bundled in ("2.1.0", "2.2.2"):
        assert SpecifierSet(posix["version"]).contains(bundled)


# --- roles


def _specification(role: str) -> dict[str, Any]:
    return read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"].get("options") or {}


@pytest.mark.parametrize("role", ROLES)
def test_defaults_equal_the_specification(role: str) -> None:
    path = ROOT / f"roles/{role}/defaults/main.yml"
    defaults = (read(path) if path.exists() else None) or {}
    specified = _specification(role)
    assert {k: v["default"] for k, v in specified.items() if "default" in v} == defaults
    for name, option in specified.items():
        assert name.startswith(f"{role}_"), name
        assert "type" in option and option.get("description"), name


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_its_files(role: str) -> None:
    for name in ("README.md", "meta/main.yml", "meta/argument_specs.yml", "tasks/main.yml"):
        assert (ROOT / "roles" / role / name).is_file(), name
    assert read(f"roles/{role}/meta/main.yml")["galaxy_info"]["description"]


def _nodes(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, dict):
        return [node, *(found for value in node.values() for found in _nodes(value))]
    return [found for item in node for found in _nodes(item)] if isinstance(node, list) else []


def test_every_role_that_a_playbook_names_exists() -> None:
    named = set()
    for path in TASK_FILES:
        for node in _nodes(read(path)):
            for role in node.get("roles", []) if "hosts" in node else []:
                named.add(role if isinstance(role, str) else role["role"])
            for action in ("ansible.builtin.include_role", "ansible.builtin.import_role"):
                if action in node:
                    named.add(node[action]["name"])
    assert named
    # molecule/shared/converge.yml: the role is the scenario's name.
    scenarios = {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")} - {"default"}
    named = {name for name in named if "{{" not in name} | {f"gb10.fleet.{scenario}" for scenario in scenarios}
    assert named <= {f"gb10.fleet.{role}" for role in ROLES}


@pytest.mark.parametrize("role", catalog.ROLES)
def test_a_role_applies_itself_and_no_other(role: str) -> None:
    tasks = _nodes(read(f"roles/{role}/tasks/main.yml"))
    assert [task["gb10.fleet.host_state"].get("roles") for task in tasks if "gb10.fleet.host_state" in task] == [[role]]
    assert all(task["gb10.fleet.plan"]["roles"] == [role] for task in tasks if "gb10.fleet.plan" in task)


@pytest.mark.parametrize("role", sorted({*ROLES} - {"benchmark", "fabric", "vllm"}))
def test_every_role_of_the_host_has_a_scenario(role: str) -> None:
    """Rails and a model that serves take machines: tests/lab. A scenario without a test judges nothing but changes."""
    assert (ROOT / "molecule" / role / "molecule.yml").is_file()
    own = {"reboot", "release_update", "trial_boot", "vllm_image"}  # their scenario's own play judges, in this folder
    tests = list((ROOT / "molecule" / role / "tests").glob("test_*.py"))
    assert bool(tests) is (role not in own)


def test_no_test_imports_from_another_test() -> None:
    """What several share is in tests/support, so that a test can be read, moved and run alone."""
    for path in [path for path in FILES if path.suffix == ".py"]:
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
                words = [word for name in names for word in name.split(".")]
                found = [word for word in words if word.startswith("test_") or word == "conftest"]
                assert not found, f"{path}, line {node.lineno}: {found[0]}: move what both need to tests/support"


# --- Ansible's own ways


def test_a_way_out_is_a_command_that_exists() -> None:
    vague = re.compile(rf"\brun the (\w+ playbook|role ({'|'.join(ROLES)}))\b")
    for path in FILES:
        if path.parts[0] not in {"plugins", "roles", "gb10_fleet"} or path.suffix not in TEXT:
            continue
        for playbook in re.findall(r"ansible-playbook gb10\.fleet\.(\w+)", text(path)):
            assert (ROOT / f"playbooks/{playbook}.yml").exists(), f"{path}: {playbook}"
        assert not vague.search(text(path)), f"{path}: say the command"


def test_a_command_that_a_playbook_offers_is_for_the_inventory_of_the_run() -> None:
    """Without `-i` it would work on the inventory that `gb10 up` wrote, which may be another one."""
    for path in (ROOT / "playbooks").glob("*.yml"):
        for said in re.findall(r"Fix: [^\"]*?\bgb10 [a-z]+ [^\"]*", path.read_text(encoding="utf-8")):
            assert "-i INVENTORY" in said, f"{path.name}: {said}"


_TASK_WORDS = {
    "always", "any_errors_fatal", "args", "async", "become", "become_user", "block", "changed_when", "check_mode",
    "connection", "delay", "delegate_facts", "delegate_to", "diff", "environment", "failed_when", "ignore_errors",
    "ignore_unreachable", "listen", "loop", "loop_control", "name", "no_log", "notify", "poll", "register", "rescue",
    "retries", "run_once", "tags", "throttle", "timeout", "until", "vars", "when",
}  # fmt: skip


def _tasks(node: Any) -> list[dict[str, Any]]:
    """Tasks of a task file or of a playbook, blocks opened."""
    found: list[dict[str, Any]] = []
    for item in node if isinstance(node, list) else []:
        sections = ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")
        nested = [section for section in sections if section in item]
        for section in nested:
            found += _tasks(item[section])
        if not nested and "hosts" not in item and "roles" not in item:
            found.append(item)
    return found


def test_the_action_group_holds_every_module() -> None:
    """For `module_defaults: {group/gb10.fleet.all: ...}`."""
    listed = yaml.safe_load(text(Path("meta/runtime.yml")))["action_groups"]["all"]
    assert listed == sorted(path.stem for path in (ROOT / "plugins/modules").glob("*.py"))


@pytest.mark.parametrize("path", [p for p in TASK_FILES if "tasks" in p.parts or p.parts[0] == "playbooks"], ids=str)
def test_modules_go_by_their_full_name(path: Path) -> None:
    for task in _tasks(read(path)):
        actions = [key for key in task if key not in _TASK_WORDS]
        assert all(re.fullmatch(r"\w+\.\w+\.\w+", action) for action in actions), f"{task.get('name')}: {actions}"


@pytest.mark.parametrize("path", [p for p in TASK_FILES if "tasks" in p.parts or p.parts[0] == "playbooks"], ids=str)
def test_no_task_makes_hosts_share_their_facts(path: Path) -> None:
    """With ansible-core 2.21 these three give every host of a run_once the same empty dict of facts: what one host then
    says of itself, all the others have said."""
    for task in _tasks(read(path)):
        if task.get("run_once"):
            assert not {f"ansible.builtin.{name}" for name in ("debug", "include_vars", "set_fact")} & task.keys(), task


_INJECTED = re.compile(
    r"\bansible_(distribution|hostname|fqdn|os_family|architecture|kernel|default_ipv4|interfaces|memtotal_mb|"
    r"processor\w*|system|product_name|machine|date_time|nodename|python_version|all_ipv4_addresses)\b"
)


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.parts[0] in {"roles", "playbooks", "inventory"} or p.parts[:2] == ("plugins", "modules")],
    ids=str,
)
def test_facts_go_by_ansible_facts(path: Path) -> None:
    assert not _INJECTED.search(text(path)), "use ansible_facts[...]: injected facts go away"


# --- words that must not stand in the project

# Split, so that this file does not find itself.
_FORBIDDEN = {
    "a process ended by name": r"\bp" + r"kill\b|\bkill" + r"all\b",
    "a path of somebody's machine": r"(?<![\w.])/(ro" + r"ot|ho" + r"me/\w+|wo" + r"rk)/\w",
    "a package registry's host": r"(deb" + r"ian|ubu" + r"ntu|py" + r"pi|pyth" + r"onhosted|npm" + r"js)\.(org|com)\b",
    "a note to oneself": r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b",
    "trust of root's git in folders of others, whose programs it then runs": r"safe\.direc" + r"tory",
    "a private key": r"BEGIN (OPENSSH|RSA|EC) PRIV" + r"ATE KEY",
}  # fmt: skip


@pytest.mark.parametrize("why", _FORBIDDEN)
def test_no_file_holds(why: str) -> None:
    pattern = re.compile(_FORBIDDEN[why])
    found = []
    for path in FILES:
        if path.suffix not in TEXT or (ROOT / path).is_symlink() or path.name == "LICENSE":
            continue
        for number, line in enumerate(text(path).splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path}:{number}: {line.strip()[:100]}")
    assert not found, f"{why}:\n" + "\n".join(found)


def test_every_python_file_of_the_collection_names_its_licence() -> None:
    for path in FILES:
        if path.parts[0] == "plugins" and path.suffix == ".py" and text(path).strip():
            assert "# SPDX-License-Identifier: GPL-3.0-or-later" in text(path), path


def test_files_and_functions_stay_short() -> None:
    """Who reads one has it in view: 500 lines a file, 60 a function, its docstring included."""
    long = []
    for path in FILES:
        if path.suffix != ".py" or path.parts[0] not in {"plugins", "gb10_fleet"}:
            continue
        source = text(path)
        sizes = [(str(path), len(source.splitlines()), 500)]
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                sizes.append((f"{path}: {node.name}", (node.end_lineno or 0) - node.lineno + 1, 60))
        long += [f"{name} has {lines} lines, at most {most}" for name, lines, most in sizes if lines > most]
    assert not long, "\n".join(long)


def test_documents_link_to_what_exists() -> None:
    for path in FILES:
        if path.suffix == ".md" and not (ROOT / path).is_symlink():
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(path)):
                assert (ROOT / path.parent / target).exists(), f"{path}: {target}"


def test_the_manual_lists_every_variable_of_the_collection() -> None:
    listed = re.findall(r"^\| `(gb10_\w+)` \|", text(Path("docs/inventory.md")), re.MULTILINE)
    assert sorted(listed) == sorted(catalog.COLLECTION_VARIABLES)


def test_the_manual_lists_the_roles_in_the_order_of_work() -> None:
    """The table of roles says that it has all of them, in this order; below it are those that are not among them."""
    page = text(Path("docs/inventory.md"))
    table, _, others = page.partition("in this order:")[2].partition("\n\nThe roles ")
    assert re.findall(r"^\| \[(\w+)\]\(\.\./roles/\1/README\.md\) \|", table, re.MULTILINE) == list(catalog.ROLES)
    named = re.findall(r"\[(\w+)\]\(\.\./roles/\1/README\.md\)", others.partition("are not in `gb10_roles`")[0])
    assert sorted(named) == sorted({*ROLES} - {*catalog.ROLES})


def test_the_manual_lists_what_each_tag_chooses() -> None:
    table = text(Path("docs/inventory.md")).partition("| tag | chooses |")[2].partition("\n\n")[0]
    assert re.search(rf"^\| `host` \| {', '.join(tags.PARTS['host'])} \|$", table, re.MULTILINE)
    *most, last = tags.PARTS["serving"]
    assert tags.PARTS["fabric"] == ("fabric",)
    assert f"\n| `fabric`, `serving` | the role fabric; the roles {', '.join(most)} and {last} |\n" in table


def test_the_manual_lists_how_each_variable_begins() -> None:
    """What is refused by any unknown name, and what only as a slip."""
    listed = text(Path("docs/inventory.md")).partition("how\nthe name begins:")[2].partition("- All other names")[0]
    ours, common = (re.findall(r"`(\w+_)`", part) for part in listed.split("\n- ")[1:])
    declared = catalog.declared_variables()
    own = declared.own_prefixes
    assert sorted(ours) == sorted({*own} - {name for name in own if name.startswith(tuple({*own} - {name}))})
    assert sorted(common) == sorted({*declared.prefixes} - {*own})


def test_the_manual_explains_every_field_of_the_manifest() -> None:
    table = (
        text(Path("docs/architecture/documents-and-engine.md"))
        .partition("| of a resource | holds |")[2]
        .partition("\n\n")[0]
    )
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(manifest.Entry._fields)


def test_resources_in_the_manual_are_taken_by_the_engine() -> None:
    contract = text(Path("docs/architecture/documents-and-engine.md")).partition("## The engine")[2]
    for page in (contract, text(Path("docs/inventory.md")).partition("## A file of your own")[2]):
        example = yaml.safe_load(page.partition("```yaml")[2].partition("```")[0])
        resources = example[0]["tasks"][0]["gb10.fleet.host_state"]["resources"] if "tasks" in example[0] else example
        assert engine.parse_documents([("ours", resources)], {}).claims


def test_scripts_can_be_run() -> None:
    for name in ("scripts/venv", "scripts/as-root", "scripts/demo", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name


def test_an_environment_of_another_python_is_made_anew(tmp_path: Path) -> None:
    """Without an index pip ends with an error, behind the environment and before the checkout."""
    other = tmp_path / "bin/python"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho /opt/other 3 12 1\n")
    other.chmod(0o755)
    argv = [ROOT / "scripts/venv", tmp_path, "run", sys.executable]
    done = subprocess.run(argv, env={**os.environ, "PIP_NO_INDEX": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "No matching distribution" in done.stderr
    ask = [other, "-c", "import ssl, sys; print(sys.version)"]
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip() == sys.version


# --- the checkout and the collection are one


def _task_list(playbook: str, cwd: Path) -> list[str]:
    done = subprocess.run(
        [BIN / "ansible-playbook", playbook, "--list-tasks", "-i", ROOT / "inventory/example/pair"],
        cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.startswith("  ")]
    # Tags come out of a set, in any order.
    return [re.sub(r"\[(.*)\]$", lambda tags: str(sorted(re.split(", ?", tags[1]))), line) for line in lines]


def test_both_ways_into_the_project_list_the_same_tasks(tmp_path: Path) -> None:
    """From the checkout by file, and from anywhere else by the collection's name."""
    by_file, by_name = _task_list("site.yml", ROOT), _task_list("gb10.fleet.site", tmp_path)
    assert by_file == by_name
    assert any("doctor" in line.lower() for line in by_file)
