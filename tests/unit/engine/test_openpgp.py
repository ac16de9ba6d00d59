"""The fingerprint of an armoured key, and that the keys we ship are the catalog's."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gb10.fleet.plugins.module_utils.engine.openpgp import fingerprints
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground import catalog

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "roles/docker/templates/docker.asc"
SHIPPED = [
    (DOCKER, "docker_repository"),
    (ROOT / "roles/container_toolkit/templates/nvidia-container-toolkit.asc", "container_toolkit_repository"),
]


def armoured(data: bytes) -> str:
    body = base64.encodebytes(data).decode().rstrip()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{body}\n-----END PGP PUBLIC KEY BLOCK-----\n"


def packets(key: Path) -> bytes:
    body = key.read_text().split("\n\n")[1].rpartition("\n=")[0]
    return base64.b64decode(body)


@pytest.mark.parametrize(("key", "entry"), SHIPPED)
def test_a_shipped_key_is_the_one_of_the_catalog(key: Path, entry: str) -> None:
    assert fingerprints(key.read_text()) == [catalog.load("software")[entry]["fingerprint"]]


@pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
@pytest.mark.parametrize(("key", "entry"), SHIPPED)
def test_gpg_sees_the_same_key_and_good_self_signatures(key: Path, entry: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    gpg = ["gpg", "--batch", "--homedir", str(tmp_path), "--no-autostart"]
    subprocess.run([*gpg, "--import", key], check=True, capture_output=True)
    said = subprocess.run([*gpg, "--with-colons", "--check-sigs"], check=True, capture_output=True, text=True).stdout
    rows = [line.split(":") for line in said.splitlines()]
    assert next(row[9] for row in rows if row[0] == "fpr") == catalog.load("software")[entry]["fingerprint"]
    assert {row[1] for row in rows if row[0] == "sig"} == {"!"}


def test_every_primary_key_counts_and_no_subkey() -> None:
    both = packets(DOCKER) + packets(SHIPPED[1][0])
    expected = [catalog.load("software")[entry]["fingerprint"] for _key, entry in SHIPPED]
    assert fingerprints(armoured(both)) == expected


def test_both_formats_of_a_packet() -> None:
    """The same key packet with headers of the old format and of the new one, in each of its lengths."""
    body = b"\x04" + bytes(range(98))
    old = fingerprints(armoured(b"\x98" + bytes([len(body)]) + body))
    assert len(old[0]) == 40
    assert fingerprints(armoured(b"\xc6" + bytes([len(body)]) + body)) == old
    assert fingerprints(armoured(b"\xc6\xff" + len(body).to_bytes(4, "big") + body)) == old
    long = b"\x04" + bytes(299)
    assert fingerprints(armoured(b"\x99" + len(long).to_bytes(2, "big") + long)) == fingerprints(
        armoured(b"\xc6" + bytes([((300 - 192) >> 8) + 192, (300 - 192) & 0xFF]) + long)
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not one armoured"),
        ("words", "not one armoured"),
        (DOCKER.read_text() * 2, "not one armoured"),
        (DOCKER.read_text().replace("PUBLIC", "PRIVATE"), "not one armoured"),
        (armoured(b"\x98\x10\x04"), "ends in the middle"),
        (armoured(b"\x99\x01"), "ends in the middle"),
        (armoured(b"\xc6\xe1\x04\x04"), "unknown length"),
        (armoured(b"\x04\x04"), "no OpenPGP packet"),
        (armoured(b"\x98\x02\x06\x00"), "another version"),
        (armoured(b"\x98").replace("mA==", "mA="), "not base64"),
    ],
)
def test_what_is_no_key_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        fingerprints(text)
