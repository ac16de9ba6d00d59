"""The fleet's own list of bad releases counts only with a good signature. ssh-keygen is the real one."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from gb10_fleet import known_bad, release
from tests.support.attacker import tally

ENTRY = """known_bad:
  - id: noisy
    release: OTA2607
    boards: [ASUS]
    symptom: the fan is loud
    source: rack 4
    date: "2026-11-01"
    confidence: measured here
"""


def keygen(*words: str) -> None:
    subprocess.run(["ssh-keygen", *words], check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fleet's folder with a file that somebody trusted has signed."""
    for name in ("ours", "foreign"):
        keygen("-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name))
    (tmp_path / "signers").write_text(f"ops@example {(tmp_path / 'ours.pub').read_text()}")
    (tmp_path / known_bad.FILE).write_text(ENTRY)
    sign(tmp_path)
    return tmp_path


def sign(folder: Path, key: str = "ours", namespace: str = known_bad.NAMESPACE) -> None:
    (folder / f"{known_bad.FILE}.sig").unlink(missing_ok=True)
    keygen("-Y", "sign", "-f", str(folder / key), "-n", namespace, str(folder / known_bad.FILE))


def test_a_signed_file_adds_to_the_catalog(folder: Path) -> None:
    found = known_bad.added({"known_bad": [{"id": "of the catalog"}]}, folder, folder / "signers")
    assert [row["id"] for row in found["known_bad"]] == ["of the catalog", "noisy"]


def test_without_a_file_the_catalog_alone_counts(tmp_path: Path) -> None:
    assert known_bad.added({"known_bad": []}, tmp_path) == {"known_bad": []}


def test_a_list_that_somebody_took_away_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its signature is still there, or this controller trusts somebody to sign one."""
    (folder / known_bad.FILE).unlink()
    with pytest.raises(known_bad.NotTrusted, match=r"known_bad\.yml is gone, and its signature is there"):
        known_bad.added({"known_bad": []}, folder, folder / "signers")
    (folder / f"{known_bad.FILE}.sig").unlink()
    assert known_bad.added({"known_bad": []}, folder, folder / "signers") == {"known_bad": []}
    assert "known_bad.yml is not there, so only the catalog's list counts" in capsys.readouterr().err
    (folder / "signers").unlink()
    known_bad.added({"known_bad": []}, folder, folder / "signers")
    assert capsys.readouterr().err == "", "who signs none has none"


def test_a_file_that_was_changed_afterwards_is_refused(folder: Path) -> None:
    (folder / known_bad.FILE).write_text(ENTRY.replace("OTA2607", "OTA2604"))
    with pytest.raises(known_bad.NotTrusted, match="changed after it was signed"):
        known_bad.added({"known_bad": []}, folder, folder / "signers")


def test_an_older_list_that_somebody_put_back_is_refused(folder: Path) -> None:
    """Its signature is good: whoever serves the checkout can bring back each list that was ever signed."""
    (folder / "mine").mkdir()
    names = (known_bad.FILE, f"{known_bad.FILE}.sig")

    def ids(of: Path = folder) -> list[str]:
        return [row["id"] for row in known_bad.added({"known_bad": []}, of, folder / "signers")["known_bad"]]

    assert ids() == ids() == ["noisy"]
    old = {name: (folder / name).read_bytes() for name in names}
    (folder / known_bad.FILE).write_text(ENTRY + ENTRY.replace("noisy", "bricks").partition("\n")[2])
    sign(folder)
    assert ids() == ids() == ["noisy", "bricks"]
    for at in (folder, folder / "mine"):
        for name, content in old.items():
            (at / name).write_bytes(content)
    assert ids(folder / "mine") == ["noisy"], "another fleet has its own"
    won = False
    with contextlib.suppress(known_bad.NotTrusted):
        won = bool(ids())
    tally("a list of bad releases that somebody put back", 1, int(won))
    with pytest.raises(known_bad.NotTrusted, match="older list, which a newer one has replaced"):
        ids()
    (folder / known_bad.FILE).write_text(f"# anew\n{ENTRY}")
    sign(folder)
    assert ids() == ["noisy"], "its signer says so"
    (folder / "signers.seen").write_text("[{")
    assert ids() == ["noisy"], "what is damaged counts as none"


@pytest.mark.parametrize(
    ("key", "namespace", "says"),
    [
        ("foreign", known_bad.NAMESPACE, "does not name its signer"),
        ("ours", "git", f"or signed for something else than {known_bad.NAMESPACE}"),
    ],
)
def test_a_foreign_key_or_a_signature_for_something_else_is_refused(
    folder: Path, key: str, namespace: str, says: str
) -> None:
    sign(folder, key, namespace)
    with pytest.raises(known_bad.NotTrusted, match=says):
        known_bad.added({"known_bad": []}, folder, folder / "signers")


@pytest.mark.parametrize("before", ['namespaces="git"', 'valid-before="20200101"', ""])
def test_a_key_may_stand_under_several_names(folder: Path, before: str) -> None:
    """One line of them may allow it for other things only, or may have ended."""
    key = (folder / "ours.pub").read_text()
    (folder / "signers").write_text(f"git@example {before} {key}# a note\nops@example {key}")
    assert len(known_bad.added({"known_bad": []}, folder, folder / "signers")["known_bad"]) == 1


@pytest.mark.parametrize("option", ['namespaces="git"', 'valid-before="20200101"'])
def test_a_signer_who_may_not_sign_this_or_no_longer_is_told_so(folder: Path, option: str) -> None:
    (folder / "signers").write_text(f"ops@example {option} {(folder / 'ours.pub').read_text()}")
    with pytest.raises(known_bad.NotTrusted, match="does not name its signer for gb10-known-bad, or not for today"):
        known_bad.added({"known_bad": []}, folder, folder / "signers")


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x85", "\u2028"])
def test_the_comment_of_a_key_makes_nobody_a_signer(folder: Path, end: str) -> None:
    """Only a line feed ends a line for ssh-keygen; what stands behind another end was a signer to us."""
    key = (folder / "ours.pub").read_text().split()
    theirs = f'me namespaces="git" {key[0]} {key[1]} hello{end}me {key[0]} {key[1]}\n'
    (folder / "signers").write_text(theirs, newline="")
    with contextlib.suppress(known_bad.NotTrusted):
        known_bad.added({"known_bad": []}, folder, folder / "signers")
        tally("an end of line that another program does not know", 1, 1)
        pytest.fail("whose key is for git alone signed the list")
    tally("an end of line that another program does not know", 1, 0)


def test_a_link_that_leads_nowhere_does_not_switch_the_list_off(tmp_path: Path) -> None:
    (tmp_path / known_bad.FILE).symlink_to(tmp_path / "gone")
    with pytest.raises(known_bad.NotTrusted, match="cannot be read"):
        known_bad.added({"known_bad": []}, tmp_path)


def test_without_a_signature_or_without_signers_it_is_refused_with_the_way_out(folder: Path) -> None:
    with pytest.raises(known_bad.NotTrusted, match="names the keys that may sign"):
        known_bad.added({"known_bad": []}, folder, folder / "nobody")
    (folder / f"{known_bad.FILE}.sig").unlink()
    with pytest.raises(known_bad.NotTrusted, match="ssh-keygen -Y sign"):
        known_bad.added({"known_bad": []}, folder, folder / "signers")


@pytest.mark.parametrize(
    "text",
    [
        "known_bad: {}\n",
        "[",
        "known_bad:\n  - id: x\n",
        "x: 1\n",
        ENTRY + ENTRY.replace("noisy", "second"),
        ENTRY + "    date: '2026-11-02'\n",
        "[" * 5000,
        "? [a]\n: b\n",
    ],
)
def test_a_signed_file_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / known_bad.FILE).write_text(text)
    sign(folder)
    with pytest.raises(known_bad.NotTrusted, match=known_bad.FILE):
        known_bad.added({"known_bad": []}, folder, folder / "signers")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("OTA2607", "OTA26007", "no release is called OTA26007.*The nearest is OTA2607"),
        ("OTA2607", "newest", "name the release"),
        ("OTA2607", '""', "no release is called"),
        ("[ASUS]", "[ASUS, Asos]", "no board is known as 'Asos'"),
        ("[ASUS]", '[""]', "no board is known as ''"),
    ],
)
def test_an_entry_that_would_hold_no_host_is_refused(folder: Path, old: str, new: str, says: str) -> None:
    (folder / known_bad.FILE).write_text(ENTRY.replace(old, new))
    sign(folder)
    with pytest.raises(known_bad.NotTrusted, match=f"noisy: {says}"):
        known_bad.added({"known_bad": []}, folder, folder / "signers")


@pytest.mark.parametrize(
    "board", ["asus", "Micro-Star", "ASUSTeK COMPUTER INC.", "msi", "Gigabyte Technology Co., Ltd."]
)
@pytest.mark.parametrize(("to", "name"), [("July 2026", "OTA2607"), ("OTA2612", "OTA2612")])
def test_an_entry_goes_by_either_name_of_a_release(folder: Path, board: str, to: str, name: str) -> None:
    (folder / known_bad.FILE).write_text(ENTRY.replace("OTA2607", to).replace("[ASUS]", f'["{board}"]'))
    sign(folder)
    (row,) = known_bad.added({"known_bad": []}, folder, folder / "signers")["known_bad"]
    assert (row["release"], row["boards"]) == (name, [board])


@pytest.mark.parametrize(
    ("accepted", "says"),
    [({"nobody_knows": "x"}, "no such trouble is known"), ({"slow_on_7.6": ""}, "write ID=REASON")],
)
def test_what_cannot_be_accepted_is_refused(tmp_path: Path, accepted: dict[str, str | None], says: str) -> None:
    with pytest.raises(release.WrongQuestion, match=says):
        release.question("newest", [str(tmp_path)], accepted)
