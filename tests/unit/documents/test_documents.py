"""The language of roles/<role>/desired.yml: what an expression sees, what it may become, and what errors say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, RenderError
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog, plan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.plan import PlanError, RolePlan
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View, digest
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.fabric import planner as fabric

from tests.support.proofs import facts

HOSTS = ("spark-a", "spark-b")
ONLY_WHEN_AND_BLOCK = "a block has the keys when and block, and no other"
PEERS = {"spark-b": facts("spark-b")}


@dataclass(frozen=True, kw_only=True)
class DemoPlan(RolePlan):
    """What an expression sees as `plan`."""

    size: int = 3
    word: str = ""
    things: tuple[Any, ...] = ()


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Renders a document given as text, for a role `demo` of a collection of its own, with this plan."""

    def run(
        text: str, view: View | None = None, /, *, template: str = "", refused: Any = (), **planned: Any
    ) -> Rendered:
        role = tmp_path / "roles" / "demo"
        (role / "templates").mkdir(parents=True, exist_ok=True)
        (role / "desired.yml").write_text(text)
        (role / "templates" / "it.j2").write_text(template)
        documents.load.cache_clear()
        loaded = documents.load("demo", tmp_path)

        def planner(role: str, view: View) -> RolePlan:
            if isinstance(refused, Exception):
                raise refused
            return DemoPlan(refusals=refused, **planned)

        with monkeypatch.context() as patch:
            patch.setattr(documents, "load", {"demo": loaded}.__getitem__)
            patch.setattr(plan, "of", planner)
            return documents.render("demo", view or alone())

    return run


def alone(**variables: Any) -> View:
    return View("spark-a", facts("spark-a"), variables)


def paired(**changes: Any) -> View:
    variables = {"fabric_topology": "pair"}
    given: dict[str, Any] = {"members": HOSTS, "peers": PEERS, "given": {"spark-b": variables}, **changes}
    return View("spark-a", facts("spark-a"), {**variables, **given.pop("variables", {})}, **given)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{{ [1, 'a'] }}", [1, "a"]),
        ("{{ {'a': none} }}", {"a": None}),
        ("{{ plan.size }}", 3),
        ("{{ plan.size > 2 }}", True),
        ("{{- plan.size -}}", 3),
        ("{{ '}}' ~ plan.size }}", "}}3"),
        ("{{ plan.size }}{{ plan.size }}", "33"),
        ("{{ plan.size }}\n", "3\n"),
        ("is {{ plan.size }}", "is 3"),
        ("{% is not evaluated", "{% is not evaluated"),
        ("{% for i in range(plan.size) %}{{ i }}{% endfor %}", "012"),
        ("{{ range(plan.size) | map('string') }}", ["0", "1", "2"]),
        ("{{ '007' }}", "007"),  # never read as YAML or Python
        ("{{ '[1]' }}", "[1]"),
        ("{{ missing | default('none') }}", "none"),
        ("{{ {'a': 1} | combine({'b': 2}) }}", {"a": 1, "b": 2}),
        ("{{ '1.10' is version('1.9', '>') }}", True),
        ("{{ ['b', 'a', 'b'] | unique }}", ["b", "a"]),
        ("{{ ['b', 'a'] | intersect(['a']) }}", ["a"]),
        (["{{ plan.size }}", {"deep": "{{ plan.size }}"}], [3, {"deep": 3}]),
        (None, None),
    ],
)
def test_a_string_is_a_value_a_text_or_itself(render: Any, written: Any, value: Any) -> None:
    document = yaml.safe_dump({"resources": [{"file": "/x", "value": written}]})
    (resource,) = render(document).resources
    assert resource == {"file": "/x", "value": value}
    assert json.loads(json.dumps(resource)) == resource


@pytest.mark.parametrize(
    "hostile", ["{{ 6 * 7 }}", "{% raw %}", "a\n- file: /etc/passwd\n", "{{ cluster }}", "}} {{ 1 }}"]
)
def test_no_value_becomes_a_template_or_a_resource(render: Any, hostile: str) -> None:
    document = """
    resources:
      - file: /x
        content: "{{ plan.word }}"
        line: "<{{ plan.word }}|{{ vllm_model }}>"
      - file: /y
        template: it.j2
    """
    template = "{{ plan.word }}{{ vllm_model }}"
    first, second = render(document, alone(vllm_model=hostile), template=template, word=hostile).resources
    assert first == {"file": "/x", "content": hostile, "line": f"<{hostile}|{hostile}>"}
    assert second == {"file": "/y", "content": hostile * 2}


def test_when_and_loop(render: Any) -> None:
    document = """
    resources:
      - {file: /no, when: plan.size > 3}
      - {file: "/{{ item.name }}", loop: "{{ plan.things }}", when: item.name != 'b', mode: "{{ item.mode }}"}
      - {loop: [x, y], package: "{{ item }}"}
    """
    things = tuple({"name": name, "mode": "0600"} for name in "abc")
    assert render(document, things=things).resources == [
        {"file": "/a", "mode": "0600"},
        {"file": "/c", "mode": "0600"},
        {"package": "x"},
        {"package": "y"},
    ]


BLOCK = """
resources:
  - {file: /first}
  - when: plan.size > 3
    block:
      - {file: /a, when: plan.word}
      - {loop: "{{ plan.things }}", when: item != 'y', package: "{{ item }}"}
      - when: plan.word
        block: [{file: /b, template: it.j2}]
  - {file: /last}
"""


@pytest.mark.parametrize(
    ("planned", "between"),
    [
        ({"size": 4, "word": "w"}, [{"file": "/a"}, {"package": "x"}, {"file": "/b", "content": "w"}]),
        ({"size": 4}, [{"package": "x"}]),
        ({"size": 3, "word": "w"}, []),
    ],
)
def test_the_condition_of_a_block_and_that_of_a_resource_in_it_both_apply(
    render: Any, planned: dict[str, Any], between: list[dict[str, Any]]
) -> None:
    rendered = render(BLOCK, template="{{ plan.word }}", things=("x", "y"), **planned)
    assert rendered.resources == [{"file": "/first"}, *between, {"file": "/last"}]


def test_of_a_block_that_does_not_apply_nothing_is_evaluated(render: Any) -> None:
    entries = "[{loop: '{{ plan.gone }}', file: x}, {file: x, when: plan.gone}, {when: plan.gone, block: [{file: x}]}]"
    assert render(f"resources: [{{when: plan.word, block: {entries}}}]").resources == []


def test_variables_are_converted_and_those_of_another_role_are_seen(render: Any) -> None:
    document = "resources: [{file: '/{{ fabric_topology }}', mtu: '{{ fabric_mtu }}'}]"
    assert render(document, alone(fabric_mtu="1500")).resources == [{"file": "/none", "mtu": 1500}]
    (refusal,) = render(document, alone(fabric_mtu="large")).refusals
    assert refusal == "fabric_mtu is the text 'large', and must be a whole number"


def test_a_refusal_takes_the_place_of_the_resources(render: Any) -> None:
    rendered = render("resources: [{file: '{{ 1 / 0 }}'}]", refused=("too large", "also", "also"))
    assert (rendered.refusals, rendered.resources) == (["too large", "also"], [])


def test_findings_stop_nothing_and_stand_beside_refusals(render: Any) -> None:
    found = ({"id": "a_rule", "severity": "warn", "fact": "f", "way_out": "w", "accepted": None},)
    rendered = render("resources: [{file: /x}]", findings=found)
    assert (rendered.findings, rendered.resources, rendered.refusals) == (list(found), [{"file": "/x"}], [])
    refused = render("resources: [{file: /x}]", findings=found, refused=("too large",))
    assert refused == Rendered("demo", refusals=["too large"], findings=list(found))


def test_a_template_is_text_even_where_it_is_one_expression(render: Any) -> None:
    (resource,) = render("resources: [{file: /x, template: it.j2}]", template="{{ 7 }}").resources
    assert resource["content"] == "7"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            "resources: [{file: /x, mode: '{{ missing }}'}]",
            r"resources\[0\]\.mode, on spark-a: .*'missing' is undefined",
        ),
        ("resources: [{file: /x, mode: 'a {{ missing }}'}]", r"resources\[0\]\.mode, on spark-a: .*'missing'"),
        ("resources: [{file: /x, mode: ['{{ [missing] }}']}]", r"resources\[0\]\.mode\[0\], on spark-a"),
        ("resources: [{file: /x}, {file: /x, template: it.j2}]", r"resources\[1\]\.template, on spark-a: .*'gone'"),
        ("resources: [{file: /x, when: missing}]", r"resources\[0\]\.when, on spark-a: .*'missing'"),
        (
            "resources: [{file: /x, mode: '{{ range }}'}]",
            r"resources\[0\]\.mode, on spark-a: .*cannot go into a document",
        ),
        ("resources: [{file: /x, mode: '{{ plan.nothing }}'}]", r"resources\[0\]\.mode, on spark-a: .*nothing"),
        ("resources: [{when: missing, block: [{file: /x}]}]", r"resources\[0\]\.when, on spark-a: .*'missing'"),
        (
            "resources: [{when: 'true', block: [{file: /x}, {loop: [1], file: '/{{ missing }}'}]}]",
            r"resources\[0\]\.block\[1\]\.file, on spark-a: .*'missing'",
        ),
        (  # the item is that of a resource
            "resources: [{when: item, block: [{loop: [1], file: /x}]}]",
            r"resources\[0\]\.when, on spark-a: .*'item' is undefined",
        ),
    ],
)
def test_an_error_names_role_place_and_host(render: Any, document: str, says: str) -> None:
    with pytest.raises(RenderError, match=f"^role demo, {says}"):
        render(document, template="{{ gone }}")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("resource: []", "expected the key resources with a list, and no other"),
        ("resources: []\nvars: {}", "expected the key resources with a list, and no other but orphans"),
        ("resources: {}", "expected the key resources with a list, and no other"),
        ("resources: ['{{ [] }}']", r"resources\[0\]: expected a mapping"),
        ("resources: [[1]]", r"resources\[0\]: expected a mapping"),
        ("resources: [{file: '{{ a '}]", "unexpected"),
        ("resources: [{file: /x, template: it.j2, content: x}]", r"resources\[0\]\.template: is for a file"),
        ("resources: [{unit: x, template: it.j2}]", r"resources\[0\]\.template: is for a file"),
        ("resources: [{file: x, template: absent.j2}]", "absent.j2"),
        ("resources: [{when: a, block: [], loop: [1]}]", rf"resources\[0\]\.loop: {ONLY_WHEN_AND_BLOCK}"),
        ("resources: [{when: a, block: [], name: b}]", rf"resources\[0\]\.name: {ONLY_WHEN_AND_BLOCK}"),
        *(
            (f"resources: [{{when: {wrong}, {rest}}}]", r"resources\[0\]\.when: expected an expression")
            for wrong in ("", "' '", "[a, b]", "false", "{a: b}")
            for rest in ("block: []", "file: /x")
        ),
        ("resources: [{block: []}]", rf"resources\[0\]\.when: {ONLY_WHEN_AND_BLOCK}"),
        ("resources: [{when: a, block: {file: /x}}]", r"resources\[0\]\.block: expected a list"),
        ("resources: [{when: a, block: [[1]]}]", r"resources\[0\]\.block\[0\]: expected a mapping"),
        (
            "resources: [{when: a, block: [{when: b, block: [{unit: x, template: it.j2}]}]}]",
            r"resources\[0\]\.block\[0\]\.block\[0\]\.template: is for a file",
        ),
    ],
)
def test_a_broken_document_is_refused_before_any_host(render: Any, document: str, says: str) -> None:
    with pytest.raises(RenderError, match=f"^role demo.*{says}"):
        render(document)


def test_only_the_facts_that_a_planner_read_are_expected() -> None:
    view = alone()
    assert view.facts["kernel"] and view.facts["packages"].get("x") is None
    assert view.expect == {key: digest(facts()[key]) for key in ("kernel", "packages")}
    view = alone()
    assert view.facts.get("soon") is None
    assert view.expect == {"soon": digest(None)}, "a fact that appears must be noticed"


def test_a_plan_of_the_cluster_depends_on_the_facts_of_each_member_alike() -> None:
    view = paired()
    assert fabric.plan(view).mine.profiles[0].cidr == "192.168.100.10/24"
    assert {"rails", "interfaces", "routes"} <= set(view.expect)
    assert view.expect["rails"] == digest(facts("spark-a")["rails"])


def test_the_digest_is_that_of_canonical_json() -> None:
    assert digest({"b": 1, "a": [None]}) == digest({"a": [None], "b": 1})
    assert digest("a") == "ac8d8342bbb2362d13f0a559a3621bb407011368895164b628a54f7fc33fc43c"


def test_a_catalog_is_named(render: Any) -> None:
    document = "resources: [{file: '{{ catalog.host_sets.driver_branch.value }}'}]"
    assert render(document).resources == [{"file": catalog.load("host_sets")["driver_branch"]["value"]}]


@pytest.mark.parametrize(
    ("view", "refusals", "unknown"),
    [
        (paired(), ["waits for your consent"], ()),
        (paired(peers={}), [], ("spark-b",)),
        (paired(certain=False), [], ("spark-b",)),
        (paired(given={"spark-b": {"fabric_topology": "pair", "fabric_mtu": 1500}}), ["must agree on fabric_mtu"], ()),
        (View("spark-a", facts(), {"fabric_topology": "pair"}), ["fabric_topology pair needs exactly 2 hosts"], ()),
    ],
)
def test_what_depends_on_other_hosts_is_refused_only_by_facts_of_this_run(
    view: View, refusals: list[str], unknown: tuple[str, ...]
) -> None:
    rendered = documents.render("fabric", view)
    assert rendered.unknown == unknown and rendered.resources == []
    assert len(rendered.refusals) == len(refusals)
    assert all(words in text for words, text in zip(refusals, rendered.refusals, strict=True))


def test_uncertain_facts_of_others_do_not_hide_a_refusal_of_the_hosts_own(render: Any) -> None:
    rendered = render("resources: []", paired(certain=False), refused=("own",), joint_refusals=("waits",))
    assert (rendered.refusals, rendered.unknown) == (["own"], ("spark-b",))
    rendered = render("resources: []", paired(certain=False), refused=PlanError("no plan"))
    assert (rendered.refusals, rendered.unknown) == ([], ("spark-b",))
    assert render("resources: []", paired(), refused=PlanError("no plan")).refusals == ["no plan"]


def test_every_role_is_in_the_default_of_gb10_roles_and_renders() -> None:
    root = catalog.collection_root()
    assert sorted(catalog.ROLES) == sorted(path.parent.name for path in root.glob("roles/*/desired.yml"))
    documents.preload()
    with pytest.raises(RenderError, match="dokcer is no role with a document"):
        documents.load("dokcer")


class Tagged(str):
    """Ansible's own strings are of a subclass, too."""

    def __str__(self) -> str:
        raise AssertionError("not to be asked")


class Lazy(dict[str, Any]):
    """As Ansible's containers: what it holds is not what it gives."""

    def items(self) -> Any:
        return {"given": 1}.items()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(Tagged("a"), "a"), ((1, Tagged("b")), [1, "b"]), (Lazy(raw=0), {"given": 1}), (True, True), ({"k"}, ["k"])],
)
def test_plain_values_are_of_pythons_own_types(value: Any, expected: Any) -> None:
    made = documents.plain(value)
    assert made == expected and _types(made) <= {str, int, bool, list, dict}
    with pytest.raises(TypeError, match="bytes cannot go into a document"):
        documents.plain([b"x"])


def _types(value: Any) -> set[type]:
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return {type(value)}.union(*map(_types, parts))
