"""The tables that a play of faults ends with."""

from collections import Counter

from scripts.chaos import PARTS, summary
from tests.chaos.stage import Life
from tests.chaos.verdict import Verdict

SERVER, DISK, *_ = PARTS


def verdict(*problems: str, failed: str = "") -> Verdict:
    return Verdict(
        played=Counter({"connections ended": 2, "power cut": 1}),
        struck=Counter({"connections ended": 1_200}),
        units={"connections ended": "connection", "power cut": ""},
        failed={failed} if failed else set(),
        problems=list(problems),
        lives=[Life("up", started=3, killed=2, at_stop=0), Life("worker", started=2, ended=[1], at_stop=0)],
        jobs=170,
        seconds=61.4,
        billed=8_000,
        counted=8_100,
        ledger=8_000,
    )


def test_a_table_shows_faults_processes_and_credits() -> None:
    assert (
        verdict().table()
        == """\
fault              played  struck             result
connections ended       2  1,200 connections  survived
power cut               1                     survived

process  started  killed  ended by itself  exit code at its stop
up             3       2  never                                0
worker         2       0  1                                    0

170 jobs done in 61 s; upstream billed 8,000 credits, caps count 8,100, the ledger has 8,000"""
    )


def test_the_summary_names_what_was_not_survived_and_how_to_play_that_again() -> None:
    found = {SERVER: verdict("up ended by itself with 1", failed="power cut"), DISK: verdict()}
    lines = summary(found, "--seed 7 --minutes 3", ()).splitlines()
    assert [line.split()[-2:] for line in lines if "power cut" in line] == [["NOT", "SURVIVED"], ["1", "survived"]]
    assert lines[-2:] == [
        "6 faults played. NOT SURVIVED: server.",
        "replay: make chaos ARGS='--seed 7 --minutes 3 --part server'",
    ]


def test_a_part_that_cannot_be_played_here_is_named() -> None:
    lines = summary({DISK: "NOT PLAYED: not permitted"}, "--seed 7 --minutes 3", ["disk"]).splitlines()
    assert lines[1].split() == ["disk", "all", "of", "its", "faults", "0", "NOT", "PLAYED"]
    assert lines[-2] == "0 faults played. Nothing is proved."
