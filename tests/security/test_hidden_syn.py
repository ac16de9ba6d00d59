"""A machine on the LAN hides the start of a connection behind headers of IPv6: a guarded port answers none. Takes root.

The kernel puts fragments together before the rules see them. Where options stood in front of the fragment header, it
then takes what follows for these options, and goes on to TCP; the rules read from the beginning, and see no TCP.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from ansible_collections.gb10.fleet.plugins.plugin_utils.documents.render import render
from ansible_collections.gb10.fleet.plugins.plugin_utils.ground.view import View

from tests.support.attacker import tally
from tests.support.netns import Net
from tests.support.proofs import facts

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")
HOST, STRANGER = "fe80::11", "fe80::99"  # each host has such an address, whether it uses IPv6 or not
OPEN, GUARDED = 22, (29501, 33333)
IN_FRONT = ([60], [60, 60], [0, 60], [43], [43, 60], [0], [])  # options and routing headers, and what is no such thing
SEND = """
import itertools, json, socket, struct, sys, time
port, target_mac, own_mac, source, target, in_front = sys.argv[1:]
port, fronts = int(port), json.loads(in_front)
there, here = (bytes.fromhex(each.replace(":", "")) for each in (target_mac, own_mac))
source, target = (socket.inet_pton(socket.AF_INET6, each) for each in (source, target))
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(("eth0", 0)); wire.setblocking(False)
wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def syn(own):
    tcp = struct.pack("!HHIIBBHHH", own, port, 7, 0, 5 << 4, 2, 1024, 0, 0)
    return tcp[:16] + struct.pack("!H", checksum(source + target + struct.pack("!I3xB", len(tcp), 6) + tcp)) + tcp[18:]
def send(kinds, rest):
    packet = b"".join(struct.pack("!B7x", after) for after in kinds[1:]) + rest
    head = struct.pack("!IHBB", 6 << 28, len(packet), kinds[0], 64) + source + target
    wire.send(there + here + b"\\x86\\xdd" + head + packet)
tries = {}
for front, number in itertools.product(fronts, range(256)):
    own = len(tries) + 1024
    tries[own] = [front, number]
    # Padding, or a routing header that is at its end, whichever the kernel takes it for; then TCP.
    hidden = struct.pack("!B7x", 6) + syn(own)
    send([*front, 44], struct.pack("!BxHI", number, 0, own) + hidden)
    send([*front, 44], struct.pack("!BxHI", number, 1, own << 16) + hidden[:16])
    send([*front, 44], struct.pack("!BxHI", number, 16, own << 16) + hidden[16:])
    if number % 32 == 0: time.sleep(0.01)
send([6], syn(65000))
time.sleep(1)
answered = set()
while True:
    try: frame = wire.recv(2048)
    except BlockingIOError: break
    if frame[:6] == here and frame[20] == 6 and frame[54:56] == port.to_bytes(2, "big") and frame[67] & 0x12 == 0x12:
        answered.add(int.from_bytes(frame[56:58], "big"))
print(json.dumps([len(tries), [tries[own] for own in sorted(answered & set(tries))], 65000 in answered]))
"""


def rules() -> str:
    spark = {**facts("spark-a"), "ssh_ports": [OPEN]}
    made = render("firewall", View("spark-a", spark, {"fabric_topology": "none"}, ("spark-a",), peers={}, given={}))
    (text,) = (each["content"] for each in made.resources if each.get("file") == "/etc/gb10-fleet/firewall.nft")
    return str(text)


@pytest.fixture
def lan() -> Iterator[Net]:
    net = Net(f"gb10hs{os.getpid()}-")
    try:
        for name in ("hub", "host", "stranger"):
            net.add(name)
        net.bridge("lan", {"host": ("eth0", [f"{HOST}/64"]), "stranger": ("eth0", [f"{STRANGER}/64"])})
        net.run("host", "nft", "-f", "-", stdin=rules())
        net.listen("host", OPEN, *GUARDED, backlog=4096)
        yield net
    finally:
        net.close()


@pytest.mark.parametrize("port", [OPEN, *GUARDED])
def test_no_header_hides_a_connection(lan: Net, port: int) -> None:
    macs = [
        json.loads(lan.run(name, "ip", "-j", "link", "show", "eth0"))[0]["address"] for name in ("host", "stranger")
    ]
    argv = [sys.executable, "-c", SEND, str(port), *macs, STRANGER, HOST, json.dumps(IN_FRONT)]
    tries, answered, plain = json.loads(lan.run("stranger", *argv))
    assert plain == (port == OPEN), "the test can see an answer"
    if port != OPEN:
        tally(
            "a stranger that hides a connection behind headers of IPv6: guarded ports that answer",
            2 * tries,
            len(answered),
        )
        assert answered == []
