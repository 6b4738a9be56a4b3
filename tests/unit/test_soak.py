"""The long searches: what was run is not run again, failures are reported with their replay commands."""

import json
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from scripts.soak import SEARCHES, Chunk, Search, Soak, chunks_of, command_of

ROOT = Path(__file__).resolve().parents[2]
REPLAY = """MISTNET_TEST_SEED=3 make test ARGS='tests/simulation/test_engine.py -k "test_x and sqlite"'"""
FAILING = f"import sys; print('assert [] == []; replay: ' + {REPLAY!r}); sys.exit(1)"
SEEDS = Search(name="seeds", unit="seeds", total=5, per_chunk=2, variable="MISTNET_TEST_SEEDS", arguments=("tests/a",))
KILLS = Search(
    name="kills", unit="kills", total=1, per_chunk=1, variable="KILLS", arguments=("b", "-k", "c or d"), is_range=False
)


class Runs:
    """A soak whose chunks are small programs; remembers which were started."""

    def __init__(self, folder: Path, program: str = "pass") -> None:
        self.state = folder / "soak.json"
        self.program = program
        self.started: list[str] = []
        self.output = StringIO()

    def command(self, chunk: Chunk) -> Sequence[str]:
        self.started.append(chunk.name)
        return [sys.executable, "-S", "-c", self.program]

    def run(self, *, seconds: float = 60) -> int:
        console = Console(file=self.output, width=200)
        return Soak([SEEDS, KILLS], self.state, command=self.command, processes=1, console=console).run(seconds=seconds)


def test_chunks_cover_every_unit_and_take_turns() -> None:
    names = [chunk.name for chunk in chunks_of([SEEDS, KILLS])]
    assert names == ["seeds 0-1", "kills 0-0", "seeds 2-3", "seeds 4-4"]


def test_a_chunk_is_told_its_range_or_its_number() -> None:
    first, second, *_ = chunks_of([SEEDS, KILLS])
    assert first.environment == {"MISTNET_TEST_SEEDS": "0:2"}
    assert second.environment == {"KILLS": "1"}


def test_all_chunks_run_and_the_report_counts_them(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert runs.run() == 0
    assert len(runs.started) == 4
    assert "seeds 2-3: passed" in runs.output.getvalue()
    assert "seeds: 5 of 5 seeds, 0 of 3 chunks failed" in runs.output.getvalue()
    assert "kills: 1 of 1 kills, 0 of 1 chunks failed" in runs.output.getvalue()


def test_finished_chunks_are_not_run_again(tmp_path: Path) -> None:
    first = Runs(tmp_path)
    first.run()
    kept = json.loads(first.state.read_text())
    del kept["seeds 2-3"]
    first.state.write_text(json.dumps(kept))
    again = Runs(tmp_path)
    assert again.run() == 0
    assert again.started == ["seeds 2-3"]


def test_a_failure_is_reported_with_its_replay_command_also_by_later_runs(tmp_path: Path) -> None:
    failing = Runs(tmp_path, FAILING)
    assert failing.run() == 1
    assert REPLAY in failing.output.getvalue()
    assert REPLAY in (tmp_path / "soak-seeds-0-1.log").read_text()
    later = Runs(tmp_path)
    assert later.run() == 1
    assert later.started == []
    assert REPLAY in later.output.getvalue()


def test_a_chunk_that_fails_without_a_seed_is_replayed_as_a_whole(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "raise SystemExit(2)")
    assert runs.run() == 1
    assert "KILLS=1 make test ARGS='b -k \"c or d\"'" in runs.output.getvalue()


def test_a_script_is_told_its_seed_and_replayed_by_its_own_command() -> None:
    search = Search(
        name="c", unit="seeds", total=9, per_chunk=1, variable="V", script=("scripts/chaos.py", "--minutes", "3")
    )
    chunk = Chunk(search=search, first=7, size=1)
    assert command_of(chunk) == [sys.executable, "scripts/chaos.py", "--minutes", "3", "--seed", "7"]
    assert chunk.replay == "make chaos ARGS='--minutes 3 --seed 7'"


def test_the_replay_command_of_a_play_is_reported(tmp_path: Path) -> None:
    replay = "make chaos ARGS='--seed 7 --minutes 3 --part disk'"
    runs = Runs(tmp_path, f"import sys; print({'replay: ' + replay!r}); sys.exit(1)")
    assert runs.run() == 1
    assert replay in runs.output.getvalue()


def test_no_chunk_is_started_when_the_time_is_up(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert runs.run(seconds=0) == 0
    assert runs.started == []
    assert "seeds: 0 of 5 seeds" in runs.output.getvalue()


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_a_search_names_tests_and_variables_that_exist(search: Search) -> None:
    named = (*search.arguments, *search.script[:1])
    paths = [ROOT / each for each in named if each.startswith(("tests/", "scripts/"))]
    assert paths
    assert all(path.exists() for path in paths)
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name != "test_soak.py"]
    assert any(search.variable in file.read_text() for file in files)
