"""Everything that fails around real processes: none of them ends, no attempt is spent on it, and all is collected."""

from pathlib import Path

import pytest

from tests.chaos.broker import OF_QUEUES, Broker
from tests.chaos.faults import OF_FILES, OF_PROCESSES, OF_SERVER_DISKS, OF_SERVERS
from tests.chaos.play import on_file, on_server, play
from tests.chaos.upstream import OF_UPSTREAM
from tests.services.availability import unavailable
from tests.services.rabbitmq import SharedNode
from tests.services.small_disk import CannotMount, small_disk

SEED = 5


@pytest.mark.in_turn(1)
@pytest.mark.timeout(900)
def test_a_server_that_fails_in_every_way_costs_time_alone(tmp_path: Path) -> None:
    with on_server(tmp_path, seed=SEED, pace=90) as (target, stage):
        verdict = play(OF_SERVERS, target, stage, seconds=0)
    assert verdict.problems == [], verdict.table()


@pytest.mark.timeout(900)
def test_a_full_disk_costs_time_alone(tmp_path: Path) -> None:
    with on_file(tmp_path, seed=SEED, pace=600) as (target, stage):
        verdict = play(OF_FILES, target, stage, seconds=0)
    assert verdict.problems == [], verdict.table()


@pytest.mark.in_turn(0)
@pytest.mark.timeout(900)
def test_a_server_whose_disk_is_full_is_waited_for_with_one_line_of_log(tmp_path: Path) -> None:
    try:
        with small_disk(megabytes=128) as disk, on_server(tmp_path, seed=SEED, pace=600, disk=disk) as (target, stage):
            verdict = play(OF_SERVER_DISKS, target, stage, seconds=0)
    except CannotMount as error:
        unavailable("small disk", str(error))
    assert verdict.problems == [], verdict.table()
    said = {name: stage.said(name).count("the database fails") for name in stage.commands}
    assert max(said.values()) == 1, said


@pytest.mark.in_turn(2)
@pytest.mark.timeout(900)
def test_killed_processes_a_failing_broker_and_a_failing_upstream_lose_nothing(
    tmp_path: Path, broker_url: str, rabbit: SharedNode
) -> None:
    broker = Broker(url=broker_url, ask=rabbit.ask)
    with on_server(tmp_path, seed=SEED, pace=80, broker=broker) as (target, stage):
        stage.commands = {name: words for name, words in stage.commands.items() if name != "consumer-2"}
        verdict = play((*OF_PROCESSES, *OF_QUEUES, *OF_UPSTREAM), target, stage, seconds=0)
    assert verdict.problems == [], verdict.table()
