"""Play every fault against real processes for a while, compare with the truth, and print what was survived."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.chaos.broker import OF_BROKERS, own_broker  # noqa: E402 (they are found by the path above)
from tests.chaos.faults import OF_FILES, OF_PROCESSES, OF_SERVER_DISKS, OF_SERVERS, Fault, Target  # noqa: E402
from tests.chaos.play import on_file, on_server, play  # noqa: E402
from tests.chaos.stage import Stage  # noqa: E402
from tests.chaos.upstream import OF_PAGES, OF_UPSTREAM  # noqa: E402
from tests.chaos.verdict import Verdict, align  # noqa: E402
from tests.services.small_disk import CannotMount, small_disk  # noqa: E402

DISK_MEGABYTES = 128
Staged = AbstractContextManager[tuple[Target, Stage]]


class Part(NamedTuple):
    """Faults that are played together, and what they are played on."""

    name: str
    title: str
    staged: Callable[[Path, int, int], Staged]
    faults: Sequence[Fault]


def _on_server(folder: Path, seed: int, pace: int) -> Staged:
    return on_server(folder, seed=seed, pace=pace)


def _on_file(folder: Path, seed: int, pace: int) -> Staged:
    return on_file(folder, seed=seed, pace=pace)


@contextmanager
def _on_small_disk(folder: Path, seed: int, pace: int) -> Iterator[tuple[Target, Stage]]:
    with small_disk(megabytes=DISK_MEGABYTES) as disk, on_server(folder, seed=seed, pace=pace, disk=disk) as staged:
        yield staged


@contextmanager
def _over_broker(folder: Path, seed: int, pace: int) -> Iterator[tuple[Target, Stage]]:
    with own_broker() as broker, on_server(folder, seed=seed, pace=pace, broker=broker) as staged:
        yield staged


PARTS = (
    Part("server", "PostgreSQL fails", _on_server, OF_SERVERS),
    Part("disk", "The disk of PostgreSQL is full", _on_small_disk, OF_SERVER_DISKS),
    Part("file", "The disk of SQLite is full", _on_file, OF_FILES),
    Part("broker", "RabbitMQ fails", _over_broker, OF_BROKERS),
    Part("upstream", "Upstream fails, pages are hostile", _on_server, (*OF_UPSTREAM, *OF_PAGES)),
    Part(
        "all",
        "Everything fails",
        _over_broker,
        (*OF_SERVERS, *OF_BROKERS, *OF_UPSTREAM, *OF_PAGES, *OF_PROCESSES),
    ),
)
CALLS = 100
"""More than half of what a world takes: so many calls may be made while the faults are played."""
FAULT_SECONDS = 8
"""About how long one fault takes, with its end."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=5, help="decides the world and the order of the faults")
    parser.add_argument("--minutes", type=float, default=1.0, help="for how long each part is played, at least")
    names = [part.name for part in PARTS]
    parser.add_argument("--part", action="append", choices=names, help="only this part; may be given several times")
    parser.add_argument("--logs", type=Path, help="a folder to keep what the processes said")
    given = parser.parse_args()
    verdicts: dict[Part, Verdict | str] = {}
    for part in PARTS:
        if given.part and part.name not in given.part:
            continue
        print(f"\n{part.title}: {counted(len(part.faults), 'fault')}, seed {given.seed}", flush=True)
        verdicts[part] = found = run(part, given.seed, given.minutes, given.logs)
        print(found if isinstance(found, str) else f"\n{found.table()}", flush=True)
    asked = f"--seed {given.seed} --minutes {given.minutes:g}"
    print(f"\n{summary(verdicts, asked, given.part or ())}", flush=True)
    return int(any(not isinstance(found, str) and found.problems for found in verdicts.values()))


def run(part: Part, seed: int, minutes: float, logs: Path | None) -> Verdict | str:
    """Play one part; or say why it cannot be played on this machine."""
    seconds = minutes * 60
    pace = max(int(CALLS * 60 / max(seconds, FAULT_SECONDS * len(part.faults))), 2)
    with tempfile.TemporaryDirectory() as folder:
        kept = (logs / part.name).resolve() if logs else Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        try:
            with part.staged(kept, seed, pace) as (target, stage):
                return play(part.faults, target, stage, seconds=seconds)
        except CannotMount as error:
            return f"NOT PLAYED: {error}"


def summary(verdicts: Mapping[Part, Verdict | str], asked: str, parts: Sequence[str]) -> str:
    """One table of all parts, a sentence, and how to play it again: what was not survived, or else all of it."""
    rows = [("part", "fault", "played", "struck", "result")]
    for part, found in verdicts.items():
        if isinstance(found, str):
            rows.append((part.name, "all of its faults", "0", "", "NOT PLAYED"))
        else:
            rows += [(part.name, *row) for row in found.fault_rows()]
            rows.append((part.name, "complete, exit codes 0, credits counted", "1", "", found.result))
    times = sum(found.played.total() for found in verdicts.values() if not isinstance(found, str))
    bad = [part.name for part, found in verdicts.items() if not isinstance(found, str) and found.problems]
    good = "All survived." if times else "Nothing is proved."
    said = f"NOT SURVIVED: {', '.join(bad)}." if bad else good
    again = " ".join([asked, *(f"--part {name}" for name in bad or parts)])
    return "\n".join(
        [*align(rows), "", f"{counted(times, 'fault')} played. {said}", f"replay: make chaos ARGS='{again}'"]
    )


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    raise SystemExit(main())
