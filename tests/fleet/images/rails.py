"""Gives a container the RDMA devices of two rails: files in the place of those that the kernel has where RDMA is.

The interfaces are real, with a wire between the hosts. No RDMA flows. `argv[1]` is the host's number in the
address plan.
"""

import subprocess
import sys
from pathlib import Path

LAYER = Path("/run/gb10-lab/class")
RAILS = (("rocep1s0f0", "enp1s0f0np0", 100), ("roceP2p1s0f0", "enP2p1s0f0np0", 101))

for hca, netdev, subnet in RAILS:
    gid = f"0000:0000:0000:0000:0000:ffff:c0a8:{subnet:02x}{10 + int(sys.argv[1]):02x}"
    files = {"state": "4: ACTIVE", "gid_attrs/ndevs/0": netdev, "gid_attrs/types/0": "RoCE v2", "gids/0": gid}
    for name, text in files.items():
        path = LAYER / "infiniband" / hca / "ports/1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
if not Path("/sys/class/infiniband").exists():
    layers = f"ro,lowerdir={LAYER}:/sys/class"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "gb10-lab", "/sys/class"], check=True)
