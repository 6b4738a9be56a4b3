"""Play every fault against real processes for a while, compare with the truth, and print what was survived."""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.chaos.faults import OF_FILES, OF_PROCESSES, OF_SERVERS  # noqa: E402 (they are found by the path above)
from tests.chaos.play import on_file, on_server, play  # noqa: E402

PACE = 60
"""Calls a minute: slow enough that there is work left while the faults are played."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=5, help="decides the world and the order of the faults")
    parser.add_argument("--minutes", type=float, default=1.0, help="for how long each part is played, at least")
    parser.add_argument("--logs", type=Path, help="a folder to keep what the processes said")
    given = parser.parse_args()
    problems = 0
    for name, stage_on, faults in (
        ("PostgreSQL, faults of the server", on_server, OF_SERVERS),
        ("PostgreSQL, faults of server and processes", on_server, (*OF_SERVERS, *OF_PROCESSES)),
        ("SQLite, faults of the disk", on_file, OF_FILES),
    ):
        print(f"\n{name} (seed {given.seed})", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            kept = given.logs / name.replace(" ", "-").replace(",", "") if given.logs else Path(folder)
            kept.mkdir(parents=True, exist_ok=True)
            pace = PACE if given.minutes < 2 else max(PACE // int(given.minutes), 5)
            with stage_on(kept, seed=given.seed, pace=pace) as (target, stage):
                verdict = play(faults, target, stage, seconds=given.minutes * 60)
        print(verdict.table(), flush=True)
        problems += len(verdict.problems)
    return int(problems > 0)


if __name__ == "__main__":
    raise SystemExit(main())
