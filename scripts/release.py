"""`make release VERSION=X.Y.Z`: everything that a release consists of, in dist/X.Y.Z, then a commit and a tag.

It works in a copy: version in galaxy.yml, changelog from the fragments, site, wheel, tarball for Galaxy, bill of
materials, checksums. Only when all of it is there does the tree change. It never pushes. What comes next is in
docs/releasing.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

from scripts.check import bare_environment, distributions, export, stage
from scripts.gates import ROOT, WORK, Gate, GateFailed, execute

# What a release changes in the tree: everything else in the copy is thrown away.
CHANGED = ("galaxy.yml", "CHANGELOG.rst", "changelogs")

ARTEFACTS = sorted([
    "SHA256SUMS", "gb10-fleet-X-docs.tar.gz", "gb10-fleet-X-py3-none-any.whl", "gb10-fleet-X.cdx.json",
    "gb10-fleet-X.tar.gz",
])  # fmt: skip


def git(*words: str, root: Path = ROOT) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def refusals(version: str, root: Path = ROOT) -> list[str]:
    """Return why this must not be released now; each names the fact and the way out."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return [f"VERSION={version or '(none)'}: three numbers with dots, for example 1.2.0"]
    found = []
    if changed := git("status", "--porcelain", root=root):
        found.append(
            f"the tree has changes that are not committed ({len(changed.splitlines())} files): commit or stash them"
        )
    if f"v{version}" in git("tag", "--list", root=root).splitlines():
        found.append(f"the tag v{version} is there already: choose a higher version")
    released = yaml.safe_load((root / "changelogs/changelog.yaml").read_text(encoding="utf-8"))["releases"]
    newest = max(released, key=number, default=None)
    if newest and number(version) <= number(newest):
        found.append(f"{version} is not newer than {newest}, the newest release in changelogs/changelog.yaml")
    current = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    if number(version) < number(current):
        found.append(f"{version} is older than {current}, the version in galaxy.yml")
    if not list((root / "changelogs/fragments").glob("*.y*ml")):
        found.append(
            "changelogs/fragments is empty: a release without a change is none, and each change has its fragment"
        )
    return found


def build(gate: Gate, version: str, into: Path) -> Path:
    """All artefacts in `into`; gives the copy in which they were made."""
    work = WORK / "release"
    shutil.rmtree(work, ignore_errors=True)
    copy = export(work / "tree")
    galaxy = copy / "galaxy.yml"
    text = re.sub(r"(?m)^version: .*$", f"version: {version}", galaxy.read_text(encoding="utf-8"))
    galaxy.write_text(text, encoding="utf-8")
    gate.run("antsibull-changelog", "release", cwd=copy)
    (copy / "changelogs/.plugin-cache.yaml").unlink(
        missing_ok=True
    )  # its notes for the next call, and no part of a release
    if version not in (copy / "CHANGELOG.rst").read_text(encoding="utf-8"):
        raise GateFailed(f"CHANGELOG.rst does not name {version}")
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    packages(gate, copy, f"v{version}", into)
    site(gate, copy, into / f"gb10-fleet-{version}-docs.tar.gz")
    bill_of_materials(gate, copy, version, into / f"gb10-fleet-{version}.cdx.json")
    checksums(into)
    return copy


def packages(gate: Gate, copy: Path, ref: str, into: Path) -> None:
    source = shutil.copytree(copy, WORK / "release/stage", symlinks=True)
    stage(source, ref)
    sdist, _wheel = distributions(gate, source, into)
    sdist.unlink()  # Galaxy, the forge and an index take the others
    gate.run("ansible-galaxy", "collection", "build", "--output-path", into, cwd=source)


def site(gate: Gate, copy: Path, archive: Path) -> None:
    # In the copy, which has the new version: -m takes `scripts` from the folder where it starts, and git says what is
    # there (the checkout's git would answer: nothing, for this folder is ignored).
    gate.run("git", "init", "--quiet", copy)
    gate.run(sys.executable, "-m", "scripts.docs", "--into", copy / "site", cwd=copy)
    with tarfile.open(archive, "w:gz") as file:
        file.add(copy / "site", arcname="gb10-fleet-docs")


def bill_of_materials(gate: Gate, copy: Path, version: str, file: Path) -> None:
    """CycloneDX: what the wheel asks for, in the versions with which `make check` ran it."""
    python = bare_environment(gate) / "bin/python"
    argv: list[str | Path] = [
        "cyclonedx-py",
        "environment",
        "--pyproject",
        copy / "pyproject.toml",
        "--output-reproducible",
    ]
    gate.run(*argv, "--output-file", file, python)
    bill = json.loads(file.read_text(encoding="utf-8"))
    # Ours is the subject, not a part; its version is not in pyproject.toml, so the tool does not know it.
    bill["metadata"]["component"]["version"] = version
    ours = [part["bom-ref"] for part in bill["components"] if part["name"] == "gb10-fleet"]
    bill["components"] = [part for part in bill["components"] if part["bom-ref"] not in ours]
    bill["dependencies"] = [part for part in bill["dependencies"] if part["ref"] not in ours]
    file.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")


def checksums(folder: Path) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def record(copy: Path, version: str, root: Path = ROOT) -> None:
    """The tree gets the version and the changelog, in a commit of their own with a tag."""
    for name in CHANGED:
        if (copy / name).is_dir():
            shutil.rmtree(root / name)
            shutil.copytree(copy / name, root / name)
        else:
            shutil.copy2(copy / name, root / name)
    git("add", "--all", *CHANGED, root=root)
    git("commit", "--quiet", "--message", f"Release {version}", root=root)
    git("tag", "--annotate", f"v{version}", "--message", f"gb10-fleet {version}", root=root)


def rehearsal(gate: Gate) -> None:
    """The whole release, commit and tag included, in a copy that is a repository of its own."""
    copy = export(WORK / "rehearsal")
    (copy / ".work").mkdir()
    (WORK / "wheel").mkdir(exist_ok=True)
    (copy / ".work/wheel").symlink_to(WORK / "wheel")  # the environment of the wheel's gate
    fragment = copy / "changelogs/fragments/rehearsal.yml"
    fragment.write_text("---\ntrivial:\n  - A rehearsal.\n", encoding="utf-8")  # right after a release there is none
    who = {f"GIT_{part}_{what}": value for part in ("AUTHOR", "COMMITTER")
           for what, value in (("NAME", "rehearsal"), ("EMAIL", "rehearsal@localhost"))}  # fmt: skip
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "as it is"]):
        gate.run("git", *words, cwd=copy, env=who)
    current = yaml.safe_load((copy / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    version = f"{number(current)[0] + 1}.0.0"
    gate.run(sys.executable, "-m", "scripts.release", version, cwd=copy, env=who)
    into = copy / "dist" / version
    gate.run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=into)
    kinds = sorted(path.name.replace(version, "X").replace("gb10_fleet", "gb10-fleet") for path in into.iterdir())
    if kinds != ARTEFACTS:
        raise GateFailed(f"a release has {ARTEFACTS}, this one {kinds}")
    with tarfile.open(into / f"gb10-fleet-{version}.tar.gz") as archive:
        hidden = [name for name in archive.getnames() if any(part.startswith(".") for part in Path(name).parts)]
    if hidden:
        raise GateFailed(f"files of tools in the tarball for Galaxy: {hidden}")
    searched(gate, into / f"gb10-fleet-{version}-docs.tar.gz")
    if git("status", "--porcelain", root=copy) or git("describe", root=copy) != f"v{version}":
        raise GateFailed("the release is not committed and tagged")
    if again := refusals(version, copy):
        gate.say(f"a second time it is refused: {again}")
    else:
        raise GateFailed("the same version could be released twice")
    gate.passed = 1


def searched(gate: Gate, archive: Path) -> None:
    """The released site, opened from its files in a browser: its search finds the page about orphans."""
    chromium = shutil.which("chromium")
    if chromium is None:
        gate.skips.append("no chromium, so nobody searched the site; apt-get install chromium")
        return
    with tempfile.TemporaryDirectory() as folder:
        # The program: tarfile has no safe way to extract before Python 3.11.4, and Debian 12 has 3.11.2.
        gate.run("tar", "--extract", "--file", archive, "--directory", folder)
        page = (Path(folder) / "gb10-fleet-docs/search.html").as_uri()
        quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
        waits = ("--virtual-time-budget=20000", "--dump-dom")
        dom = gate.run(chromium, *quiet, f"--user-data-dir={folder}/profile", *waits, f"{page}?q=orphans")
    if not re.search(r'<li class="kind-\w+"><a href="docs/drift\.html', dom):
        raise GateFailed("the search of the site does not find docs/drift.md under `orphans`")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    parser.add_argument("version", nargs="?", default="")
    parser.add_argument("--dry-run", action="store_true", help="the same, without the commit and the tag")
    parser.add_argument("--rehearse", action="store_true", help="all of it in a copy, commit and tag included")
    args = parser.parse_args()
    if args.rehearse:
        return execute(Gate("release: the whole of it in a copy", rehearsal)).failed
    if found := refusals(args.version):
        print(*(f"Not released: {line}" for line in found), sep="\n", file=sys.stderr)
        return 1
    into = ROOT / "dist" / args.version

    def work(gate: Gate) -> None:
        copy = build(gate, args.version, into)
        if not args.dry_run:
            record(copy, args.version)

    print(f"Building {args.version} in a copy; takes 2 to 4 minutes.", flush=True)
    if execute(Gate(f"release {args.version}", work)).failed:
        return 1
    print(*(f"  {path.relative_to(ROOT)}" for path in sorted(into.iterdir())), sep="\n")
    end = (
        "Dry run: the tree is as it was."
        if args.dry_run
        else f"Committed and tagged v{args.version}; nothing was pushed."
    )
    print(f"{end} What comes next: docs/releasing.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
