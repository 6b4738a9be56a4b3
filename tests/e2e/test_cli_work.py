"""Workers as real processes: stopped by one signal or two, killed, watched."""

import json
import os
import pty
import signal
import socket
import subprocess
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands import DEADLINE_SECONDS, command_line
from tests.e2e.conftest import CommandLine, until

PATIENT = {"MISTNET_GRACE_SECONDS": "60"}
HASTY = {"MISTNET_GRACE_SECONDS": "0.5"}


def running(mistnet: CommandLine) -> int:
    return len(mistnet.sql("SELECT id FROM jobs WHERE state = 'running'"))


def worker_pids(mistnet: CommandLine) -> set[int]:
    return {row["pid"] for row in mistnet.sql("SELECT pid FROM workers")}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_line(process: subprocess.Popen[str], words: str) -> None:
    """Reads the log until it says so; a thread then drinks the rest, so that the pipe never fills."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return
    raise AssertionError(f"the log never said {words!r}")


def test_sigterm_lets_a_running_job_finish(on_sqlite: CommandLine) -> None:
    gate = on_sqlite.folder / "gate"
    on_sqlite.add("gated", path=str(gate))
    worker = on_sqlite.start("work", **PATIENT)
    until(lambda: running(on_sqlite) == 1)
    worker.send_signal(signal.SIGTERM)
    wait_for_line(worker, "SIGTERM: no new jobs")
    gate.touch()
    assert worker.wait(timeout=DEADLINE_SECONDS) == 0
    assert worker.stdout is not None
    out = worker.stdout.read()
    assert out.startswith("1 job settled in ")
    assert on_sqlite.sql("SELECT state FROM job_history") == [{"state": "succeeded"}]
    assert worker_pids(on_sqlite) == set()


def test_a_job_too_long_for_the_grace_is_handed_back_untouched(on_sqlite: CommandLine) -> None:
    on_sqlite.add("sleepy", seconds=600)
    worker = on_sqlite.start("work", "--json", **HASTY)
    until(lambda: running(on_sqlite) == 1)
    worker.send_signal(signal.SIGINT)
    out, _ = worker.communicate(timeout=DEADLINE_SECONDS)
    assert worker.returncode == 0
    assert json.loads(out)["drained"]
    left = on_sqlite.sql("SELECT state, attempts, worker, lease_until FROM jobs")
    assert left == [{"state": "pending", "attempts": 0, "worker": None, "lease_until": None}]


def test_a_second_signal_stops_at_once_and_the_lease_is_left_to_run_out(on_sqlite: CommandLine) -> None:
    on_sqlite.add("sleepy", seconds=600)
    worker = on_sqlite.start("work", **PATIENT)
    until(lambda: running(on_sqlite) == 1)
    worker.send_signal(signal.SIGTERM)
    wait_for_line(worker, "SIGTERM: no new jobs")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=DEADLINE_SECONDS) == 143
    assert running(on_sqlite) == 1


def test_a_cancelled_job_s_worker_finds_its_lease_gone_and_writes_nothing(on_postgres: CommandLine) -> None:
    gate = on_postgres.folder / "gate"
    on_postgres.add("gated", path=str(gate))
    worker = on_postgres.start("work", "--until-idle")
    until(lambda: running(on_postgres) == 1)
    on_postgres.ok("jobs", "cancel", "1")
    gate.touch()
    _, err = worker.communicate(timeout=DEADLINE_SECONDS)
    assert worker.returncode == 0
    assert "lost its lease" in err
    assert on_postgres.sql("SELECT n FROM effects") == []
    assert on_postgres.sql("SELECT state FROM job_history") == [{"state": "cancelled"}]


def test_an_idle_worker_hears_of_work_that_others_make_due(mistnet: CommandLine) -> None:
    mistnet.add("quick", n=1)
    mistnet.sql("UPDATE jobs SET state = 'dead', attempts = max_attempts")
    worker = mistnet.start("work", MISTNET_IDLE_POLL_SECONDS="600")
    until(lambda: worker_pids(mistnet))
    mistnet.ok("jobs", "requeue", "--all")
    until(lambda: mistnet.sql("SELECT n FROM effects") == [{"n": 1}])
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=DEADLINE_SECONDS)


@pytest.mark.in_turn(1)
def test_a_child_that_was_killed_is_replaced_and_the_crew_stops_together(on_postgres: CommandLine) -> None:
    crew = on_postgres.start("work", "--processes", "2", "--database-url", on_postgres.url, **PATIENT)
    until(lambda: len(worker_pids(on_postgres)) == 2)
    first = worker_pids(on_postgres)
    for pid in first:
        assert on_postgres.url not in Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"), "others could read it"
    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    wait_for_line(crew, "starting another")
    until(lambda: len(worker_pids(on_postgres) - first) == 1)
    everyone = worker_pids(on_postgres) - {victim}
    assert len(everyone) == 2
    crew.send_signal(signal.SIGTERM)
    assert crew.wait(timeout=DEADLINE_SECONDS) == 0
    assert not any(is_alive(pid) for pid in everyone)
    assert worker_pids(on_postgres) == {victim}


def test_children_stop_by_themselves_when_their_parent_is_killed(on_sqlite: CommandLine) -> None:
    crew = on_sqlite.start("work", "--processes", "2", **PATIENT)
    until(lambda: len(worker_pids(on_sqlite)) == 2)
    children = worker_pids(on_sqlite)
    crew.kill()
    until(lambda: worker_pids(on_sqlite) == set())
    until(lambda: not any(is_alive(pid) for pid in children))


def test_a_second_signal_ends_a_crew_at_once(on_sqlite: CommandLine) -> None:
    on_sqlite.add("sleepy", seconds=600)
    crew = on_sqlite.start("work", "--processes", "2", **PATIENT)
    until(lambda: running(on_sqlite) == 1 and len(worker_pids(on_sqlite)) == 2)
    children = worker_pids(on_sqlite)
    crew.send_signal(signal.SIGINT)
    wait_for_line(crew, "the worker processes are told to finish")
    crew.send_signal(signal.SIGINT)
    assert crew.wait(timeout=DEADLINE_SECONDS) == 130
    until(lambda: not any(is_alive(pid) for pid in children))


def test_metrics_are_served_with_the_depth_of_the_queue(on_sqlite: CommandLine) -> None:
    on_sqlite.add("sleepy", seconds=600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worker = on_sqlite.start("work", "--metrics-port", str(port), **HASTY)
    seen: list[str] = []

    def shown() -> bool:
        address = f"http://127.0.0.1:{port}/metrics"
        with suppress(OSError), urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as answer:  # not there yet
            seen[:] = [answer.read().decode()]
        return bool(seen) and 'mistnet_queue_depth{kind="sleepy"' in seen[0]

    until(shown)
    assert "mistnet_database_writable 1.0" in seen[0].splitlines()  # what deploy/compose.yaml looks for
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=DEADLINE_SECONDS)
    assert worker.returncode == 0


def test_status_on_a_terminal_keeps_watching_until_ctrl_c(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    ours, theirs = pty.openpty()
    watch = subprocess.Popen(
        command_line("status", "--watch"),
        cwd=on_sqlite.folder,
        env=on_sqlite.environment(TERM="xterm", COLUMNS="200"),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    on_sqlite.started.append(watch)  # type: ignore[arg-type]  # bytes here, text elsewhere; both can be killed
    os.close(theirs)
    shown = b""
    while b"waits for a free worker" not in shown:
        shown += os.read(ours, 65_536)
    watch.send_signal(signal.SIGINT)
    with suppress(OSError):  # the terminal closes with its last user
        while os.read(ours, 65_536):
            pass
    assert watch.wait(timeout=DEADLINE_SECONDS) == 130
    assert watch.stderr is not None
    assert watch.stderr.read() == b""
    os.close(ours)
