"""A database that fails in every way we know, under real processes: no one ends, no attempt is spent, all is there."""

from pathlib import Path

import pytest

from tests.chaos.faults import OF_FILES, OF_PROCESSES, OF_SERVERS
from tests.chaos.play import on_file, on_server, play

SEED = 5


@pytest.mark.timeout(900)
def test_a_server_that_fails_in_every_way_costs_time_alone(tmp_path: Path) -> None:
    with on_server(tmp_path, seed=SEED, pace=120) as (target, stage):
        verdict = play(OF_SERVERS, target, stage, seconds=0)
    assert verdict.problems == [], verdict.table()


@pytest.mark.timeout(900)
def test_a_full_disk_costs_time_alone(tmp_path: Path) -> None:
    with on_file(tmp_path, seed=SEED, pace=600) as (target, stage):
        verdict = play(OF_FILES, target, stage, seconds=0)
    assert verdict.problems == [], verdict.table()


@pytest.mark.in_turn(2)
@pytest.mark.in_turn(1)
@pytest.mark.timeout(900)
def test_frozen_and_killed_processes_lose_nothing(tmp_path: Path) -> None:
    with on_server(tmp_path, seed=SEED, pace=300) as (target, stage):
        verdict = play(OF_PROCESSES, target, stage, seconds=0)
    assert verdict.problems == [], verdict.table()
