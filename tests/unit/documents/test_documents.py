"""The language of roles/<role>/desired.yml: what an expression sees, what it may become, and what errors say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gb10.fleet.plugins.plugin_utils import catalog
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents import render as documents
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import Rendered, RenderError
from ansible_collections.gb10.fleet.plugins.plugin_utils.plans.view import View, digest

from tests.support.proofs import facts

HOSTS = ("spark-a", "spark-b")
PEERS = {"spark-b": facts("spark-b")}


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Renders a document given as text, for a role `demo` of a collection of its own."""

    def run(text: str, context: View | None = None, /, *, template: str = "", **defaults: Any) -> Rendered:
        role = tmp_path / "roles" / "demo"
        for name in ("templates", "defaults"):
            (role / name).mkdir(parents=True, exist_ok=True)
        (role / "desired.yml").write_text(text)
        (role / "templates" / "it.j2").write_text(template)
        (role / "defaults" / "main.yml").write_text(yaml.safe_dump(defaults))
        documents.load.cache_clear()
        loaded = documents.load("demo", tmp_path)
        fabric = documents.load("fabric")
        monkeypatch.setattr(documents, "load", lambda name: {"demo": loaded, "fabric": fabric}[name])
        try:
            return documents.render("demo", context or alone())
        finally:
            monkeypatch.undo()

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
        ("{{ size }}", 3),
        ("{{ size > 2 }}", True),
        ("{{- size -}}", 3),
        ("{{ '}}' ~ size }}", "}}3"),
        ("{{ size }}{{ size }}", "33"),
        ("{{ size }}\n", "3\n"),
        ("is {{ size }}", "is 3"),
        ("{% is not evaluated", "{% is not evaluated"),
        ("{% for i in range(size) %}{{ i }}{% endfor %}", "012"),
        ("{{ range(size) | map('string') }}", ["0", "1", "2"]),
        ("{{ '007' }}", "007"),  # never read as YAML or Python
        ("{{ '[1]' }}", "[1]"),
        ("{{ missing | default('none') }}", "none"),
        ("{{ {'a': 1} | combine({'b': 2}) }}", {"a": 1, "b": 2}),
        ("{{ '1.10' is version('1.9', '>') }}", True),
        ("{{ ['b', 'a', 'b'] | unique }}", ["b", "a"]),
        ("{{ ['b', 'a'] | intersect(['a']) }}", ["a"]),
        (["{{ size }}", {"deep": "{{ size }}"}], [3, {"deep": 3}]),
        (None, None),
    ],
)
def test_a_string_is_a_value_a_text_or_itself(render: Any, written: Any, value: Any) -> None:
    document = yaml.safe_dump({"resources": [{"file": "/x", "value": written}]})
    (resource,) = render(document, size=3).resources
    assert resource == {"file": "/x", "value": value}
    assert json.loads(json.dumps(resource)) == resource


@pytest.mark.parametrize(
    "hostile", ["{{ 6 * 7 }}", "{% raw %}", "a\n- file: /etc/passwd\n", "{{ cluster }}", "}} {{ 1 }}"]
)
def test_no_value_becomes_a_template_or_a_resource(render: Any, hostile: str) -> None:
    document = """
    vars: {word: "{{ given }}", said: "{{ spark.kernel }}"}
    resources:
      - file: /x
        content: "{{ word }}"
        line: "<{{ word }}|{{ said }}>"
      - file: /y
        template: it.j2
    """
    context = View("spark-a", {"kernel": hostile}, {"given": hostile})
    first, second = render(document, context, template="{{ word }}{{ spark.kernel }}", given="").resources
    assert first == {"file": "/x", "content": hostile, "line": f"<{hostile}|{hostile}>"}
    assert second == {"file": "/y", "content": hostile * 2}


def test_the_variables_of_the_host_stand_over_the_defaults_and_vars_use_both(render: Any) -> None:
    document = """
    vars: {one: "{{ wanted }}", two: "{{ one ~ kept }}"}
    resources: [{file: "{{ two }}"}]
    """
    assert render(document, alone(wanted="w"), wanted="d", kept="k").resources == [{"file": "wk"}]


def test_a_var_that_nobody_uses_cannot_fail(render: Any) -> None:
    assert render('vars: {bad: "{{ 1 / 0 }}"}\nresources: [{file: /x}]').resources == [{"file": "/x"}]


def test_when_and_loop(render: Any) -> None:
    document = """
    resources:
      - {file: /no, when: missing is defined}
      - {file: "/{{ item.name }}", loop: "{{ things }}", when: item.name != 'b', mode: "{{ item.mode }}"}
      - {loop: [x, y], package: "{{ item }}"}
      - "{{ [{'sysctl': 'a'}, {'sysctl': 'b'}] if things else [] }}"
      - "{{ {'hold': 'z'} }}"
    """
    things = [{"name": name, "mode": "0600"} for name in "abc"]
    assert render(document, things=things).resources == [
        {"file": "/a", "mode": "0600"},
        {"file": "/c", "mode": "0600"},
        {"package": "x"},
        {"package": "y"},
        {"sysctl": "a"},
        {"sysctl": "b"},
        {"hold": "z"},
    ]


def test_what_the_host_says_of_another_role(render: Any) -> None:
    document = """
    vars: {said: "{{ ['fabric_mtu', 'fabric_topology'] | map('extract', variables_of('fabric')) }}"}
    resources: [{file: "{{ said | join(' ') }}"}]
    """
    assert render(document, alone(fabric_mtu=1500)).resources == [{"file": "1500 none"}]


def test_a_refusal_takes_the_place_of_the_resources(render: Any) -> None:
    document = """
    refuse:
      - {when: size > 2, because: "size is {{ size }}. Set it to 2."}
      - {when: size > 9, because: never}
      - {when: size, because: also}
    resources: [{file: "{{ 1 / 0 }}"}]
    """
    rendered = render(document, size=3)
    assert rendered.refusals == ["size is 3. Set it to 2.", "also"]
    assert rendered.resources == []


def test_a_refusal_may_be_of_each_item_of_a_list(render: Any) -> None:
    document = """
    refuse:
      - {loop: "{{ things }}", when: item.size > 2, because: "{{ item.name }} is too large."}
      - {loop: "{{ names }}", because: "{{ item }}"}
    resources: [{file: /x}]
    """
    things = [{"name": name, "size": size} for name, size in (("a", 3), ("b", 1), ("c", 9))]
    rendered = render(document, things=things, names=["d", "d"])
    assert rendered.refusals == ["a is too large.", "c is too large.", "d"] and rendered.resources == []
    assert render(document, things=things[1:2], names=[]).resources == [{"file": "/x"}]


def test_findings_stop_nothing_and_stand_beside_refusals(render: Any) -> None:
    document = """
    findings: "{{ said }}"
    refuse: [{when: size > 2, because: too large}]
    resources: [{file: /x}]
    """
    said = [{"id": "a_rule", "severity": "warn", "fact": "f", "way_out": "w", "accepted": None}]
    rendered = render(document, said=said, size=1)
    assert (rendered.findings, rendered.resources, rendered.refusals) == (said, [{"file": "/x"}], [])
    assert render(document, said=said, size=3) == Rendered("demo", refusals=["too large"], findings=said)
    assert render("resources: [{file: /x}]").findings == []


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
        ("refuse: [{when: 1 / 0, because: x}]", r"refuse\[0\]\.when, on spark-a: ZeroDivisionError"),
        ("vars: {a: '{{ 1 / 0 }}'}\nresources: ['{{ a }}']", r"vars\.a, on spark-a"),
        ("resources: ['{{ 1 }}']", r"resources\[0\], on spark-a: expected a mapping or a list of mappings"),
        ("resources: ['{{ [[1]] }}']", r"resources\[0\], on spark-a: expected a mapping"),
        (
            "resources: [{file: /x, mode: '{{ range }}'}]",
            r"resources\[0\]\.mode, on spark-a: .*cannot go into a document",
        ),
        ("resources: [{file: /x, mode: '{{ spark.nothing }}'}]", r"resources\[0\]\.mode, on spark-a: .*nothing"),
    ],
)
def test_an_error_names_role_place_and_host(render: Any, document: str, says: str) -> None:
    with pytest.raises(RenderError, match=f"^role demo, {says}"):
        render(document, template="{{ gone }}")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("resource: []", "resource is none of vars, refuse, findings, resources"),
        ("resources: [[1]]", r"resources\[0\]: expected a mapping"),
        ("resources: ['{{ a ']", "unexpected"),
        ("resources: [{file: /x, template: it.j2, content: x}]", r"resources\[0\]\.template: is for a file"),
        ("resources: [{unit: x, template: it.j2}]", r"resources\[0\]\.template: is for a file"),
        ("resources: [{file: x, template: absent.j2}]", "absent.j2"),
        ("refuse: [{when: a}]", r"refuse\[0\]: expected the keys when or loop, and because"),
        ("vars: {a: '{{ b }}', b: 1}", r"vars\.a: b is not defined above it"),
        ("vars: {a: '{{ a }}'}", r"vars\.a: a is not defined above it"),
        ("vars: {spark: 1}", r"vars\.spark: the name has a meaning already"),
        ("vars: {given: 1}", r"vars\.given: the name has a meaning already"),
    ],
)
def test_a_broken_document_is_refused_before_any_host(render: Any, document: str, says: str) -> None:
    with pytest.raises(RenderError, match=f"^role demo.*{says}"):
        render(document, given=1)


def test_a_default_must_not_be_a_template(render: Any) -> None:
    with pytest.raises(RenderError, match=r"defaults/main\.yml: given is a template"):
        render("resources: []", given="{{ other }}")


def test_only_the_facts_that_were_used_are_expected(render: Any) -> None:
    context = alone()
    render("resources: [{file: '{{ spark.kernel }}', a: \"{{ spark.packages['x'] | default('') }}\"}]", context)
    assert context.expect == {key: digest(facts()[key]) for key in ("kernel", "packages")}
    context = alone()
    render("resources: [{file: '{{ spark.soon | default(1) }}'}]", context)
    assert context.expect == {"soon": digest(None)}, "a fact that appears must be noticed"


def test_a_plan_of_the_cluster_depends_on_the_facts_of_each_member_alike(render: Any) -> None:
    context = paired()
    (resource,) = render("resources: [{file: '{{ fabric.mine.profiles[0].cidr }}'}]", context).resources
    assert resource == {"file": "192.168.100.10/24"}
    assert {"rails", "interfaces", "routes"} <= set(context.expect)
    assert context.expect["rails"] == digest(facts("spark-a")["rails"])


def test_the_digest_is_that_of_canonical_json() -> None:
    assert digest({"b": 1, "a": [None]}) == digest({"a": [None], "b": 1})
    assert digest("a") == "ac8d8342bbb2362d13f0a559a3621bb407011368895164b628a54f7fc33fc43c"


def test_the_cluster(render: Any) -> None:
    document = """
    resources:
      - file: "{{ cluster.members | join(',') }}"
        rank: "{{ cluster.rank }}"
        size: "{{ cluster.size }}"
        kernels: "{{ cluster.facts.values() | map(attribute='hostname') }}"
        said: "{{ cluster.said.values() | map(attribute='given') }}"
        of: "{{ cluster.said['spark-b'].given }}"
        here: "{{ inventory_hostname }}"
    """
    context = paired(variables={"given": "mine"})
    (resource,) = render(document, context, given="default").resources
    assert resource == {
        "file": "spark-a,spark-b", "rank": 0, "size": 2, "kernels": [facts(host)["hostname"] for host in HOSTS],
        "said": ["mine", "default"], "of": "default", "here": "spark-a",
    }  # fmt: skip


def test_the_variables_of_another_role_are_named(render: Any) -> None:
    document = (
        'resources: [{file: \'{{ variables_of("fabric").fabric_topology ~ variables_of("fabric")["fabric_mtu"] }}\'}]'
    )
    assert render(document).resources == [{"file": "none9000"}]
    assert render(document, alone(fabric_topology="ring")).resources == [{"file": "ring9000"}]
    with pytest.raises(RenderError, match="fabric_typo"):
        render("resources: [{file: '{{ variables_of(\"fabric\").fabric_typo }}'}]")


def test_a_catalog_is_named(render: Any) -> None:
    document = "resources: [{file: '{{ catalog.host_sets.driver_branch.value }}'}]"
    assert render(document).resources == [{"file": catalog.load("host_sets")["driver_branch"]["value"]}]


WAITING = "refuse: [{when: fabric.mine.waiting, because: waits}]\nresources: [{file: /x}]"


@pytest.mark.parametrize(
    ("context", "refusals", "unknown"),
    [
        (paired(), ["waits"], ()),
        (paired(peers={}), [], ("spark-b",)),
        (paired(certain=False), [], ("spark-b",)),
        (paired(given={"spark-b": {"fabric_topology": "pair", "fabric_mtu": 1500}}), ["must agree on fabric_mtu"], ()),
        (View("spark-a", facts(), {"fabric_topology": "pair"}), ["fabric_topology pair needs exactly 2 hosts"], ()),
    ],
)
def test_what_the_plan_refuses_is_a_refusal_and_waits_for_the_facts_of_all(
    render: Any, context: View, refusals: list[str], unknown: tuple[str, ...]
) -> None:
    rendered = render(WAITING, context)
    assert rendered.unknown == unknown and rendered.resources == []
    assert len(rendered.refusals) == len(refusals)
    assert all(words in text for words, text in zip(refusals, rendered.refusals, strict=True))
    rendered = render("resources: [{file: '{{ fabric.plan.topology }}'}]", context)
    assert rendered.unknown == (unknown if not context.peers else ())


def test_uncertain_facts_of_others_do_not_hide_a_refusal_of_the_hosts_own(render: Any) -> None:
    document = WAITING.replace("refuse: [", "refuse: [{when: 'true', because: own}, ")
    rendered = render(document, paired(certain=False))
    assert (rendered.refusals, rendered.unknown) == (["own"], ("spark-b",))


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
