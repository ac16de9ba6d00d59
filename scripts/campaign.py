"""`make campaign`: kills runs of site.yml a hundred times at random moments; every next run must converge.

With --rollout it is `gb10 rollout` that is killed, in every step of every wave, and `gb10 resume` that must end where
an undisturbed rollout does.
On containers of the lab, as root. The seed is printed, and the same seed chooses the same moments again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.fleet.fleet import Fleet
from tests.fleet.kills import Campaign
from tests.fleet.rollouts import RolloutCampaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.campaign", description=__doc__)
    parser.add_argument("--rollout", action="store_true", help="kill gb10 rollout; go on with gb10 resume")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--in-a-row", type=int, default=1, help="with --rollout: kill its resumes as well, so often")
    parser.add_argument("--hosts", type=int, default=4, help="containers; each is killed at a moment of its own")
    parser.add_argument("--roles", default="", help="these alone, with commas; without packages a round is short")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    args = parser.parse_args()
    started = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {words}", flush=True)

    say(f"{args.kills} kills on {args.hosts} containers, seed {args.seed}")
    fleet = Fleet(args.hosts, [role for role in args.roles.split(",") if role])
    try:
        fleet.up()
        with tempfile.TemporaryDirectory(prefix="gb10-state-") as state:
            if not args.rollout:
                Campaign(fleet, args.seed, say).run(args.kills)
                return 0
            # Half around a model that is stopped and started, half with the proof: containers have no model to prove.
            for serving, kills in ((True, args.kills // 2), (False, args.kills - args.kills // 2)):
                folder = Path(state, "serving" if serving else "proven")
                folder.mkdir()
                say(f"{kills} kills, {'drained and served' if serving else 'proven'}")
                RolloutCampaign(fleet, folder, args.seed, say, args.in_a_row, serving=serving).run(kills)
    except AssertionError as error:
        say(f"FAILED with seed {args.seed}: {error}")
        return 1
    finally:
        fleet.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
