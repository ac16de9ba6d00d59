"""What a rollout does with each wave, from the words of a command; and what takes it back.

    forward   the steps of a rollout, each one ansible-playbook, with the variables behind --to
    back      the steps of a rollback, from the records of the run and of those around it

Pure: nobody is asked, and nothing is written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ansible_collections.gb10.fleet.plugins.module_utils.system.folders import planted
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

from gb10_fleet.home import resolved
from gb10_fleet.known_bad import unknown as unknown_trouble
from gb10_fleet.playbook import Outcome
from gb10_fleet.rollout import words as ansible_words
from gb10_fleet.rollout.journal import hosts_of
from gb10_fleet.rollout.waves import Refused

_COLLECTION = "gb10.fleet."
# What the playbook site does before its proof, which every wave has anyway.
_SITE = ("gb10.fleet.doctor", "gb10.fleet.converge")
# What --to moves, by the variable that names it: the consent that goes with it, and the role that does it.
_MOVES = {"driver_host_set": ("driver_allow_move", "driver"), "vllm_image": ("vllm_allow_tag", "vllm")}
# Playbooks that refuse each host without this consent, which is too late in a wave: its model is stopped by then.
_CONSENTS = {
    "gb10.fleet.reboot": "reboot_allow",
    "gb10.fleet.older_kernel": "reboot_allow",
    "gb10.fleet.trial_boot": "trial_boot_allow",
    "gb10.fleet.release_update": "release_update_allow",
}
_RELEASE = "release_update_to"  # a release: its set, and steps that a rollback leaves out, for nothing takes them back
_ONE_WAY = ("release", "packages")
_OLDER = "gb10.fleet.older_kernel"
_NOBODY_KNOWS: Mapping[str, Any] = {"": None}  # where a run that moved a host ended badly
_FULL_NAME = re.compile(r"[a-z_]\w*\.[a-z_]\w*\.[a-z_]\w*")
_IMAGE = re.compile(r"\w[\w./:-]*(@sha256:[0-9a-f]{64}|:\w[\w.-]*)")


@dataclass(frozen=True)
class Step:
    """One ansible-playbook of a wave; `plays` are imports, each `{import_playbook, vars}`."""

    name: str
    plays: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """The steps that each wave takes, as the journal keeps them. `to`: the variables behind --to."""

    playbook: str
    inventories: Sequence[str]
    directory: str
    steps: Sequence[Step]
    to: Mapping[str, Any] = field(default_factory=dict)
    limit: str | None = None
    words: Sequence[str] = ()
    drain: bool = True
    prove: bool = True

    @property
    def fetches(self) -> bool:
        """Tell whether its work may bring another image or model.

        Ours that does is converge, of others nobody knows.
        """
        names = [play["import_playbook"] for step in self.steps for play in step.plays]
        return any(name == _SITE[-1] or not name.startswith(_COLLECTION) for name in names)

    @property
    def consent(self) -> str | None:
        """The consent that its playbook wants of each host, where the recipe does not say it itself."""
        plays = [play for step in self.steps for play in step.plays]
        wanted = [(_CONSENTS.get(play["import_playbook"]), play.get("vars", {})) for play in plays]
        return next((name for name, variables in wanted if name and name not in variables), None)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Recipe:
        """Out of the record of a run."""
        return cls(**{**record["order"], "steps": [Step(**step) for step in record["order"]["steps"]]})


def forward(
    playbook: str,
    inventories: Sequence[str],
    *,
    to: Sequence[str] = (),
    reboot: bool = False,
    firmware: bool = False,
    accept: Mapping[str, str] | None = None,
    known_bad: Sequence[Mapping[str, Any]] = (),
    limit: str | None = None,
    words: Sequence[str] = (),
    drain: bool = True,
    prove: bool = True,
) -> Recipe:
    """From the words of the command; Refused says which of them cannot be. `known_bad`: the fleet's own list."""
    _refuse_words(words)
    variables = targets(to)
    release = _RELEASE in variables
    if release:
        if problem := unknown_trouble(accept or (), [*catalog.load("releases")["known_bad"], *known_bad]):
            raise Refused(problem)
        settings = {"release_update_firmware": firmware, "release_update_accept": dict(accept or {})}
        variables |= {**settings, "release_update_known_bad": [*known_bad], "gb10_release_evidence": True}
    elif firmware or accept:
        raise Refused("--firmware and --accept go with --to RELEASE")
    if reboot and "driver_host_set" not in variables:
        raise Refused("--reboot goes with --to HOST_SET; to reboot in waves, roll out the playbook reboot")
    work = [{"import_playbook": name} for name in _playbooks(playbook)]
    return Recipe(
        playbook=playbook,
        inventories=resolved(inventories),
        directory=str(Path.cwd()),
        steps=[*(_release() if release else _move() if reboot else ()), Step("work", work)],
        to=variables,
        limit=limit,
        words=[*words],
        drain=drain,
        prove=prove,
    )


def _refuse_words(words: Sequence[str]) -> None:
    """The journal keeps these words, and a wave that only looks would count as done."""
    if not words:
        return
    try:
        options = ansible_words.read(words)
    except ValueError as error:
        raise Refused(str(error)) from None
    if options.check or ansible_words.lists(options):
        raise Refused(
            "--check, --list-... or --syntax-check: a rollout that changes nothing would be called done; "
            "`gb10 rollout --plan` shows its waves, and `gb10 site --check` what would change"
        )
    if options.subset or options.inventory:
        raise Refused("--limit and --inventory: say them before --, where gb10 sees them")
    if any(not value.startswith("@") for value in options.extra_vars):
        raise Refused("-e, --extra-vars: the journal would keep that value; put it into a file and say -- -e @FILE")


def targets(to: Sequence[str]) -> dict[str, Any]:
    """The variables behind --to. To name a host set is the consent to move to it, to name a tag that to take it."""
    sets = catalog.load("host_sets")["host_sets"]
    rows = catalog.load("releases")["releases"]
    releases = {name: row for row in rows for name in (row["name"], row["external_name"]) if name}
    found: dict[str, Any] = {}
    for word in to:
        if word in sets:
            new: dict[str, Any] = {"driver_host_set": word, "driver_allow_move": True}
        elif _IMAGE.fullmatch(word):
            new = {"vllm_image": word, "vllm_allow_tag": "@" not in word}
        elif (row := releases.get(word)) and row["set"]:
            new = {_RELEASE: row["name"], "driver_host_set": row["set"], "driver_allow_move": True}
        elif row:
            raise Refused(f"--to {word}: no host set of this release is known; docs/driver.md says how to write one")
        elif word == "newest":
            raise Refused(
                "--to newest: a rollout goes to a release by its name; `gb10 release` says which is the newest"
            )
        else:
            known = ", ".join((*(row["name"] for row in rows if row["set"]), *sets))
            raise Refused(
                f"--to {word}: neither an image (name@sha256:... or name:tag), a release nor a host set: {known}"
            )
        if new.keys() & found.keys():
            raise Refused(f"--to {word}: one of its kind was said before it")
        found |= new
    return found


def _move() -> list[Step]:
    """The driver alone, then the boot: a model that starts between the two finds no GPU."""
    driver = [{"import_playbook": name, "vars": {"gb10_roles": ["driver"]}} for name in _SITE]
    boot = [{"import_playbook": "gb10.fleet.reboot", "vars": {"reboot_allow": True}}]
    return [Step("move", driver), Step("reboot", boot)]


def _release() -> list[Step]:
    """The set, the rest of the packages with the firmware, and one boot for all of it."""
    move, boot = _move()
    check = Step("release", [{"import_playbook": "gb10.fleet.release_check"}])
    update = {"import_playbook": "gb10.fleet.release_update", "vars": {"release_update_allow": True}}
    return [check, move, Step("packages", [update]), boot]


def _playbooks(name: str) -> Sequence[str]:
    """A file, a playbook of any collection by its full name, or one of ours by its short one."""
    if Path(name).is_file() and not planted(Path(name)):
        return [str(Path(name).resolve())]
    short = name.removeprefix(_COLLECTION)
    if short == "site":
        return _SITE
    if short.isidentifier() and (catalog.collection_root() / "playbooks" / f"{short}.yml").exists():
        return [f"{_COLLECTION}{short}"]
    if not _FULL_NAME.fullmatch(name) or name.startswith(_COLLECTION):
        raise Refused(f"{name} is no playbook: neither a file nor one of the collection (site, reboot, ...)")
    return [name]


def back(
    record: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    later: Sequence[Mapping[str, Any]] = (),
    words: Sequence[str] = (),
    unheard: Collection[str] = (),
) -> Recipe:
    """Return how to undo a run, given the records of those before and after it, in order; `words` are more for Ansible.

    `unheard`: hosts on which it may have changed what nobody has heard of (Journal.unheard).

    What it was told with --to goes back to what an earlier rollout was told, an image else to that of the inventory.
    The rest goes through the manifests of the hosts, which know what stood there before us.
    """
    _refuse_words(words)
    forward = Recipe.of(record)
    steps = [step for step in forward.steps if step.name not in _ONE_WAY]
    forward = replace(forward, steps=steps, words=[*forward.words, *words])
    if not (touched := _touched(record)):
        raise Refused(f"{record['run']} has touched no host: there is nothing to take back")
    mine = _changed(record, unheard)
    _refuse_back(record, mine, later)
    to: dict[str, Any] = {}
    for key in _MOVES.keys() & forward.to.keys():
        to |= _before(key, touched, record, earlier) or {}
    forward = replace(forward, steps=[*_older(forward.to), *steps])
    if forward.to and ("driver_host_set" in to or "driver_host_set" not in forward.to):
        return replace(forward, to=to)
    roles = {host: sorted(own & {"driver"} if forward.to else own) for host, own in mine.items()}
    if not any(roles.values()):
        raise Refused(f"{record['run']} has changed nothing that a manifest knows: there is nothing to take back")
    _refuse_twice(roles, earlier)
    # What --to has moved goes back to before us; of the rest a host knows whether it came with this run.
    of = {} if forward.to else {"gb10_undo_of": record["run"]}
    undo = {"import_playbook": "gb10.fleet.undo", "vars": {"gb10_undo": roles, **of}}
    consent = {"driver_allow_move": True} if any("driver" in own for own in roles.values()) else {}
    again = list(forward.steps[-1:]) if "vllm_image" in forward.to else []  # with the image of the inventory
    older = _older(forward.to)
    boot = _move()[-1:] if older else []
    return replace(forward, steps=[*older, Step("undo", [undo]), *boot, *again], to={**to, **consent})


def _older(to: Mapping[str, Any]) -> list[Step]:
    """A release has rebooted into its kernel, which cannot be taken away while it runs."""
    if _RELEASE not in to:
        return []
    name = to.get("driver_host_set")
    if (row := catalog.load("host_sets")["host_sets"].get(name)) is None:
        raise Refused(f"host set {name} of {to[_RELEASE]} is not in the catalog, so its kernel is not known")
    said = {"reboot_allow": True, "reboot_leave": f"{row['kernel']}-nvidia", "reboot_leave_release": to[_RELEASE]}
    return [Step("older kernel", [{"import_playbook": _OLDER, "vars": said}])]


def _touched(record: Mapping[str, Any]) -> set[str]:
    """The hosts on which a run has begun."""
    return {host["host"] for host in hosts_of(record) if host["started"]}


def _roles(host: Mapping[str, Any]) -> set[str]:
    """Return which roles have changed something on a host of a run."""
    return {change["role"] for change in host["changes"]}


def _changed(record: Mapping[str, Any], unheard: Collection[str]) -> dict[str, set[str]]:
    """Return by host the roles that have changed something there: a host speaks of itself alone.

    Of one that says nothing, and that nobody may have heard, those count that two others name. Where only two hosts
    were at work, the other one does: else a pair whose run was cut would go back by half.
    """
    begun = [host for host in hosts_of(record) if host["started"]]
    voices = Counter(role for host in begun for role in _roles(host))
    shared = {role for role, hosts in voices.items() if hosts >= min(2, len(begun) - 1)}
    return {host["host"]: _roles(host) or (shared if host["host"] in unheard else set()) for host in begun}


def _refuse_twice(roles: Mapping[str, Sequence[str]], earlier: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a role that ran there before: what it did then cannot be told from what it did in this run."""
    gone = {(run["of"], host["host"]) for run in earlier for host in hosts_of(run) if host["state"] == "done"}
    for run in earlier:
        for host in hosts_of(run):
            if run["kind"] == "rollback" or (run["run"], host["host"]) in gone:
                continue  # the manifest has forgotten it
            if twice := sorted(_roles(host) & {*roles.get(host["host"], ())}):
                raise Refused(
                    f"{', '.join(twice)} on {host['host']} came with {run['run']}, and the manifest knows only what"
                    " stood before that. Put the inventory back as it was, and roll it out"
                )


def _refuse_back(record: Mapping[str, Any], mine: Mapping[str, set[str]], later: Sequence[Mapping[str, Any]]) -> None:
    """Refuse where something was built on it since: that has to go first. `mine`: by host, the roles of this run."""
    keys = named(record).keys()
    taken = {run["of"] for run in later if run["outcome"] == Outcome.done.name}
    for run in later:
        both = mine.keys() & _touched(run)
        again = {
            host["host"]
            for host in hosts_of(run)
            if host["host"] in both and (keys & named(run).keys() or mine[host["host"]] & _roles(host))
        }
        if again and run["of"] == record["run"] and run["outcome"] == Outcome.done.name:
            raise Refused(f"{record['run']} was taken back already, by {run['run']}")
        if again and run["kind"] == "rollout" and run["run"] not in taken:
            raise Refused(f"{run['run']} has worked on {min(again)} since: take that one back first")


def _before(
    key: str, hosts: Iterable[str], record: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """To what these hosts were told to move before that run, as variables; None: what the inventory says."""
    consent, role = _MOVES[key]
    orders = {run["run"]: run["order"] for run in earlier}
    had: dict[str, tuple[Mapping[str, Any] | None, str]] = dict.fromkeys(sorted(hosts), (None, ""))
    for run in earlier:
        to, back_from = run["order"]["to"], orders.get(run["of"], {"to": {}})["to"]
        # Without --to it is the inventory that says it: to whoever did the same, or was changed by that role.
        same = key in back_from or run["order"]["playbook"] == record["order"]["playbook"]
        for host in hosts_of(run):
            name, done = host["host"], host["state"] == "done"
            if name not in had or not host["started"]:
                continue
            if key in to:
                moved = {word: to[word] for word in (key, consent) if word in to}
                had[name] = (moved if done else _NOBODY_KNOWS, run["run"])
            elif role in _roles(host) or (same and done):
                had[name] = (None if done else _NOBODY_KNOWS, run["run"])
    way_out = f"Say it: gb10 rollout {record['order']['playbook']} --to ... --limit ..."
    for name, (value, run_name) in had.items():
        if value is _NOBODY_KNOWS:
            raise Refused(f"{key}: what {name} has had before is not known, for {run_name} did not end well. {way_out}")
    values = [value for value, _ in had.values()]
    if any(value != values[0] for value in values):
        words = {name: value[key] if value else "that of the inventory" for name, (value, _) in had.items()}
        examples = ", ".join(f"{name} {word}" for name, word in list(words.items())[:5])
        raise Refused(
            f"{key}: the hosts did not have the same before ({examples}{', ...' * (len(words) > 5)}). {way_out}"
        )
    return values[0] if values else None


def refuse_resume(record: Mapping[str, Any], later: Sequence[Mapping[str, Any]]) -> None:
    """Whose hosts were taken elsewhere since is not gone on with: those that are done are not so any more."""
    if record["outcome"] == Outcome.done.name:
        raise Refused(f"{record['run']} is done")
    ours = _touched(record)
    for run in later:
        both = ours & _touched(run)
        if both and run["of"] == record["run"]:
            raise Refused(f"{record['run']} was taken back by {run['run']}: begin a new rollout")
        for key, value in named(record).items():
            if both and named(run).get(key, value) != value:
                raise Refused(f"{run['run']} has moved {min(both)} to another {key} since: begin a new rollout")


def named(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what --to has named, by variable: a host set, an image."""
    to = record["order"]["to"]
    return {key: to[key] for key in _MOVES if key in to}
