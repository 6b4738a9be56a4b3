"""Workers as real processes: told to stop, told twice, killed, watched."""

import json
import os
import pty
import signal
import socket
import subprocess
import threading
import urllib.request
from contextlib import suppress

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


def test_sigterm_lets_a_running_job_finish(mistnet: CommandLine) -> None:
    gate = mistnet.folder / "gate"
    mistnet.add("gated", path=str(gate))
    worker = mistnet.start("work", **PATIENT)
    until(lambda: running(mistnet) == 1)
    worker.send_signal(signal.SIGTERM)
    wait_for_line(worker, "SIGTERM: no new jobs")
    gate.touch()
    assert worker.wait(timeout=60) == 0
    assert worker.stdout is not None
    out = worker.stdout.read()
    assert out.startswith("1 settled in ")
    assert mistnet.sql("SELECT state FROM job_history") == [{"state": "succeeded"}]
    assert worker_pids(mistnet) == set()


def test_a_job_too_long_for_the_grace_is_handed_back_untouched(mistnet: CommandLine) -> None:
    mistnet.add("sleepy", seconds=600)
    worker = mistnet.start("work", **HASTY)
    until(lambda: running(mistnet) == 1)
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    left = mistnet.sql("SELECT state, attempts, worker, lease_until FROM jobs")
    assert left == [{"state": "pending", "attempts": 0, "worker": None, "lease_until": None}]


def test_a_second_signal_stops_at_once_and_the_lease_is_left_to_run_out(mistnet: CommandLine) -> None:
    mistnet.add("sleepy", seconds=600)
    worker = mistnet.start("work", **PATIENT)
    until(lambda: running(mistnet) == 1)
    worker.send_signal(signal.SIGTERM)
    wait_for_line(worker, "SIGTERM: no new jobs")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 143
    assert running(mistnet) == 1


def test_a_cancelled_job_s_worker_finds_its_lease_gone_and_writes_nothing(mistnet: CommandLine) -> None:
    gate = mistnet.folder / "gate"
    mistnet.add("gated", path=str(gate))
    worker = mistnet.start("work", "--until-idle")
    until(lambda: running(mistnet) == 1)
    mistnet.ok("jobs", "cancel", "1")
    gate.touch()
    _, err = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert "lost its lease" in err
    assert mistnet.sql("SELECT n FROM effects") == []
    assert mistnet.sql("SELECT state FROM job_history") == [{"state": "cancelled"}]


def test_an_idle_worker_hears_of_work_that_others_make_due(mistnet: CommandLine) -> None:
    mistnet.add("quick", n=1)
    mistnet.sql("UPDATE jobs SET state = 'dead', attempts = max_attempts")
    worker = mistnet.start("work", MISTNET_IDLE_POLL_SECONDS="600")
    until(lambda: worker_pids(mistnet))
    mistnet.ok("jobs", "requeue", "--all")
    until(lambda: mistnet.sql("SELECT n FROM effects") == [{"n": 1}], seconds=20)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)


def test_a_child_that_was_killed_is_replaced_and_the_crew_stops_together(mistnet: CommandLine) -> None:
    crew = mistnet.start("work", "--processes", "2", **PATIENT)
    until(lambda: len(worker_pids(mistnet)) == 2)
    first = worker_pids(mistnet)
    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    wait_for_line(crew, "starting another")
    until(lambda: len(worker_pids(mistnet) - first) == 1)
    everyone = worker_pids(mistnet) - {victim}
    assert len(everyone) == 2
    crew.send_signal(signal.SIGTERM)
    assert crew.wait(timeout=60) == 0
    assert not any(is_alive(pid) for pid in everyone)
    assert worker_pids(mistnet) == {victim}


def test_children_stop_by_themselves_when_their_parent_is_killed(mistnet: CommandLine) -> None:
    crew = mistnet.start("work", "--processes", "2", **PATIENT)
    until(lambda: len(worker_pids(mistnet)) == 2)
    children = worker_pids(mistnet)
    crew.kill()
    until(lambda: worker_pids(mistnet) == set())
    until(lambda: not any(is_alive(pid) for pid in children))


def test_a_second_signal_ends_a_crew_at_once(mistnet: CommandLine) -> None:
    mistnet.add("sleepy", seconds=600)
    crew = mistnet.start("work", "--processes", "2", **PATIENT)
    until(lambda: running(mistnet) == 1 and len(worker_pids(mistnet)) == 2)
    children = worker_pids(mistnet)
    crew.send_signal(signal.SIGINT)
    wait_for_line(crew, "the worker processes are told to finish")
    crew.send_signal(signal.SIGINT)
    assert crew.wait(timeout=20) == 130
    until(lambda: not any(is_alive(pid) for pid in children))


def test_the_database_s_password_is_on_no_child_s_command_line(mistnet: CommandLine) -> None:
    crew = mistnet.start("work", "--processes", "1", "--processes", "2", "--database-url", mistnet.url)
    until(lambda: len(worker_pids(mistnet)) == 2)
    for pid in worker_pids(mistnet):
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as line:  # noqa: PTH123 (as short as it gets)
            assert mistnet.url not in line.read()
    crew.send_signal(signal.SIGTERM)
    assert crew.wait(timeout=60) == 0


def test_metrics_are_served_with_the_depth_of_the_queue(mistnet: CommandLine) -> None:
    mistnet.add("sleepy", seconds=600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worker = mistnet.start("work", "--metrics-port", str(port), **HASTY)
    seen: list[str] = []

    def shown() -> bool:
        with suppress(OSError):  # not there yet, or busy
            seen[:] = [urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()]
        return bool(seen) and 'mistnet_queue_depth{kind="sleepy"' in seen[0]

    until(shown)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0


def test_status_on_a_terminal_keeps_watching_until_ctrl_c(on_sqlite: CommandLine) -> None:
    on_sqlite.prepare()
    on_sqlite.add("quick", n=1)
    ours, theirs = pty.openpty()
    watch = subprocess.Popen(
        on_sqlite.command("status", "--watch"),
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
    assert watch.wait(timeout=20) == 130
    assert watch.stderr is not None
    assert watch.stderr.read() == b""
    os.close(ours)


def test_work_that_ends_early_still_prints_json(on_sqlite: CommandLine) -> None:
    on_sqlite.prepare()
    worker = on_sqlite.start("work", "--json")
    until(lambda: worker_pids(on_sqlite))
    worker.send_signal(signal.SIGTERM)
    out, _ = worker.communicate(timeout=60)
    assert json.loads(out)["drained"]
