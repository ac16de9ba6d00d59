"""`python3 loads.py FILE SERVICE...`: which services of this host load at the same moment, twenty times a second.

FILE gets a line of JSON for each new set of them, and for each reason to wait. Ends with its host.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

LOADS = ("formation", "weights", "graphs")


def status(service: str) -> dict[str, object]:
    try:
        return dict(json.loads(Path(f"/run/gb10-vllm-{service}/status.json").read_text()))
    except (OSError, ValueError):
        return {}


def main() -> None:
    file, services = Path(sys.argv[1]), sys.argv[2:]
    seen = set[str]()
    while True:
        said = {service: status(service) for service in services}
        loading = [service for service in services if said[service].get("phase") in LOADS]
        waiting = {
            service: wait["verdict"] for service in services if isinstance(wait := said[service].get("waiting"), dict)
        }
        line = json.dumps([loading, waiting])
        if line not in seen:
            seen.add(line)
            with file.open("a") as log:
                log.write(f"{line}\n")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
