"""Commands on jobs: what they print, what they change, and how they exit."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import CommandLine, numbers

LONG_AGO = "'2020-01-01 00:00:00.000000'"
READING = (
    ("status",),
    ("jobs", "list"),
    ("jobs", "dead"),
    ("jobs", "show", "1"),
    ("db", "check"),
    ("db", "migrate"),
    ("doctor",),
)


def states(mistnet: CommandLine) -> dict[int, str]:
    return {row["id"]: row["state"] for row in mistnet.sql("SELECT id, state FROM jobs")}


def history(mistnet: CommandLine) -> dict[int, str]:
    return {row["id"]: row["state"] for row in mistnet.sql("SELECT id, state FROM job_history")}


def set_dead(mistnet: CommandLine, job_id: int) -> None:
    mistnet.sql(
        "UPDATE jobs SET state = 'dead', attempts = max_attempts, last_error = 'boom' WHERE id = :id",
        id=job_id,
    )


def test_jobs_that_were_added_are_worked_on_once(on_sqlite: CommandLine) -> None:
    on_sqlite.add_all([("quick", None, {"n": n}) for n in range(3)])
    done = on_sqlite("work", "--until-idle")
    assert (done.code, done.out.startswith("3 jobs settled in ")) == (0, True)
    assert numbers(on_sqlite.sql("SELECT n FROM effects")) == [0, 1, 2]
    assert states(on_sqlite) == {}
    assert set(history(on_sqlite).values()) == {"succeeded"}


def test_work_until_idle_exits_with_3_when_gaps_are_left(on_sqlite: CommandLine) -> None:
    on_sqlite.add("failing", n=1)
    on_sqlite.add("quick", n=2)
    done = on_sqlite("work", "--until-idle", "--json")
    assert done.code == 3
    assert (done.json["settled"], done.json["gaps"], done.json["drained"]) == (2, 1, False)


def test_several_processes_share_the_work_and_the_worst_exit_code_counts(mistnet: CommandLine) -> None:
    lines = "\n".join(json.dumps({"args": {"n": n}}) for n in range(40))
    assert mistnet("jobs", "add", "quick", "--from", "-", stdin=lines).code == 0
    mistnet.add("failing", n=1)
    done = mistnet("work", "--until-idle", "--processes", "2", "--json")
    assert (done.code, done.json["settled"], done.json["gaps"]) == (3, 41, 1)
    assert numbers(mistnet.sql("SELECT n FROM effects")) == list(range(40))


def test_a_worker_of_one_lane_leaves_the_other_lanes_alone(on_sqlite: CommandLine) -> None:
    on_sqlite.ok("jobs", "add", "quick", "--args", '{"n": 1}', "--lane", "side")
    on_sqlite.ok("jobs", "add", "quick", "--args", '{"n": 2}', "--lane", "toy", "--in", "3600")
    on_sqlite.ok("work", "--until-idle", "--lanes", "side")
    assert numbers(on_sqlite.sql("SELECT n FROM effects")) == [1]


def test_the_log_is_json_with_the_facts_of_each_job(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    done = on_sqlite.ok("work", "--until-idle", "--log-format", "json", "--log-level", "DEBUG")
    lines = [json.loads(line) for line in done.err.splitlines()]
    settled = next(line for line in lines if line.get("state") == "succeeded")
    assert {"time", "level", "message", "job_id", "kind", "worker", "attempt", "lane", "latency_ms"} <= set(settled)
    assert settled["time"].endswith("Z")


def test_every_reading_command_prints_one_json_document_or_plain_text(mistnet: CommandLine) -> None:
    mistnet.add("failing", n=1)
    mistnet("work", "--until-idle")
    for command in READING:
        assert isinstance(mistnet.ok(*command, "--json").json, dict), command
        shown = mistnet.ok(*command).out
        assert shown.isascii(), command
        assert "\x1b" not in shown, command


def test_a_key_that_is_alive_is_not_added_again(on_sqlite: CommandLine) -> None:
    add = ("jobs", "add", "quick", "--args", '{"n": 1}', "--key", "one", "--json")
    assert on_sqlite.ok(*add).json == {"created": 1, "duplicates": 0, "parked": 0}
    assert on_sqlite.ok(*add).json == {"created": 0, "duplicates": 1, "parked": 0}


def test_a_job_may_be_set_for_later(on_sqlite: CommandLine) -> None:
    on_sqlite.ok("jobs", "add", "quick", "--args", '{"n": 1}', "--run-at", "2999-01-01T00:00:00Z")
    on_sqlite.ok("jobs", "add", "quick", "--args", '{"n": 2}', "--in", "3600")
    shown = on_sqlite.ok("jobs", "list", "--json").json["jobs"]
    assert shown[1]["run_at"] == "2999-01-01T00:00:00Z"
    assert on_sqlite.ok("status", "--json").json["waits"][0]["reason"] == "set for a later time"


def test_the_list_goes_page_by_page_and_takes_filters(mistnet: CommandLine) -> None:
    for n in range(5):
        mistnet.add("quick", key=f"k{n % 2}-{n}", n=n)
    mistnet.add("failing", n=1)
    first = mistnet.ok("jobs", "list", "--limit", "2", "--json").json
    second = mistnet.ok("jobs", "list", "--limit", "2", "--json", "--before-id", first["next_before_id"]).json
    assert [job["id"] for job in (*first["jobs"], *second["jobs"])] == ["6", "5", "4", "3"]
    last = mistnet.ok("jobs", "list", "--limit", "2", "--json", "--before-id", second["next_before_id"]).json
    assert ([job["id"] for job in last["jobs"]], last["next_before_id"]) == (["2", "1"], None), "nothing follows"
    keyed = mistnet.ok("jobs", "list", "--kind", "quick", "--key", "k1", "--json").json["jobs"]
    assert [job["key"] for job in keyed] == ["k1-3", "k1-1"]
    mistnet.ok("jobs", "cancel", "1")
    cancelled = mistnet.ok("jobs", "list", "--state", "cancelled", "--lane", "toy", "--json").json["jobs"]
    assert [(job["id"], job["state"]) for job in cancelled] == [("1", "cancelled")]


def test_show_tells_everything_with_the_errors_of_every_attempt(on_sqlite: CommandLine) -> None:
    on_sqlite.add("failing", n=7)
    on_sqlite("work", "--until-idle")
    job: dict[str, Any] = on_sqlite.ok("jobs", "show", "1", "--json").json
    assert (job["id"], job["state"], job["args"]) == ("1", "failed", {"n": 7})
    assert [error["error"] for error in job["errors"]] == ["number 7 will never do"]
    assert "number 7 will never do" in on_sqlite.ok("jobs", "dead").out


def test_retry_makes_a_waiting_job_due_and_gives_a_dead_one_all_its_attempts(on_sqlite: CommandLine) -> None:
    on_sqlite.ok("jobs", "add", "quick", "--args", '{"n": 1}', "--in", "3600")
    on_sqlite.add("quick", n=2)
    set_dead(on_sqlite, 2)
    on_sqlite.ok("jobs", "retry", "1", "2")
    assert on_sqlite.sql("SELECT attempts FROM jobs WHERE id = 2") == [{"attempts": 0}]
    on_sqlite.ok("work", "--until-idle")
    assert numbers(on_sqlite.sql("SELECT n FROM effects")) == [1, 2]


def test_requeue_leaves_a_gap_whose_key_is_alive_in_another_job(mistnet: CommandLine) -> None:
    for _ in range(2):
        mistnet.add("quick", key="same", n=1)
        set_dead(mistnet, max(states(mistnet)))
    first = mistnet.ok("jobs", "requeue", "--all", "--json").json
    assert first == {"requeued": ["2"], "held": ["1"]}
    again = mistnet("jobs", "requeue", "1")
    assert (again.code, "another live job holds its key" in again.err) == (2, True)
    assert states(mistnet) == {1: "dead", 2: "pending"}


def test_requeue_takes_the_gaps_of_one_kind(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    on_sqlite.add("shaky", n=2)
    for job_id in (1, 2):
        set_dead(on_sqlite, job_id)
    assert on_sqlite.ok("jobs", "requeue", "--kind", "shaky", "--json").json["requeued"] == ["2"]
    assert states(on_sqlite) == {1: "dead", 2: "pending"}


def test_after_a_kill_work_status_and_doctor_say_whose_lease_is_waited_for_and_until_when(
    on_sqlite: CommandLine,
) -> None:
    on_sqlite.add("quick", n=1)
    lease = datetime.now(UTC) + timedelta(hours=1)
    on_sqlite.sql(
        "UPDATE jobs SET state = 'running', worker = 'host.77.ab', fence = 1, lease_until = :until",
        until=f"{lease:%Y-%m-%d %H:%M:%S.%f}",
    )
    shown = on_sqlite.ok("status")
    assert "leases of workers that are gone" in shown.out
    assert [each["worker"] for each in on_sqlite.ok("status", "--json").json["gone"]] == ["host.77.ab"]
    assert "1 job is leased to workers that are gone: host.77.ab" in " ".join(on_sqlite("doctor").out.split())
    on_sqlite.sql(
        "INSERT INTO workers (name, host, pid, version, lanes, concurrency, running, draining, started_at, seen_at)"
        " VALUES ('host.77.ab', 'host', 77, '1', '[]', 1, 1, 0, :now, :now)",
        now=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}",
    )
    assert on_sqlite.ok("status", "--json").json["gone"] == [], "it was seen a moment ago"
    assert "workers that are gone" not in on_sqlite("doctor").out
    on_sqlite.sql("DELETE FROM workers")
    working = on_sqlite.start("work", "--until-idle")
    assert working.stderr is not None
    line = next(line for line in working.stderr if "waiting for" in line)
    on_sqlite.sql("UPDATE jobs SET lease_until = '2026-01-01 00:00:00.000000'")
    _, said = working.communicate(timeout=DEADLINE_SECONDS)
    assert (working.returncode, "waiting for" in said) == (0, False)
    assert "waiting for 1 job of worker host.77.ab" in line
    assert f"its lease expires at {lease:%H:%M:%S} UTC" in line
    assert history(on_sqlite) == {1: "succeeded"}


def test_working_until_idle_on_some_lanes_ignores_the_gaps_of_others(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    on_sqlite.sql("UPDATE jobs SET state = 'dead', lane = 'x', last_error = 'it broke'")
    told = on_sqlite.ok("work", "--until-idle", "--lanes", "toy")
    assert "no gaps" in told.out
    assert on_sqlite("work", "--until-idle").code == 3


def test_gaps_that_are_alike_are_accepted_at_once(on_sqlite: CommandLine) -> None:
    on_sqlite.add_all([("quick", str(n), {"n": n}) for n in range(4)])
    on_sqlite.sql("UPDATE jobs SET state = 'dead', last_error = 'it broke' WHERE key <> '3'")
    on_sqlite.sql("UPDATE jobs SET last_error = 'another' WHERE key = '2'")
    assert on_sqlite("jobs", "cancel").code == 2
    assert on_sqlite("jobs", "cancel", "1", "--kind", "quick").code == 2
    assert on_sqlite("jobs", "cancel", "--error", " ").code == 2
    assert on_sqlite("jobs", "cancel", "--kind", "quikc").code == 2
    assert on_sqlite.ok("jobs", "cancel", "--kind", "quick", "--error", "broke").out == "2 gaps accepted\n"
    assert on_sqlite.ok("jobs", "cancel", "--error", "broke").out == "no gap is like that\n"
    assert on_sqlite.ok("jobs", "cancel", "--kind", "quick", "--json").json["cancelled"] == ["3"]
    assert on_sqlite.sql("SELECT key, state FROM jobs") == [{"key": "3", "state": "pending"}]


def test_a_cancelled_job_is_not_worked_on_and_stays_in_the_history(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    on_sqlite.ok("jobs", "cancel", "1")
    on_sqlite.ok("work", "--until-idle")
    assert on_sqlite.sql("SELECT n FROM effects") == []
    assert history(on_sqlite) == {1: "cancelled"}
    again = on_sqlite("jobs", "cancel", "1")
    assert (again.code, "it has left the queue" in again.err) == (2, True)


def test_a_paused_kind_waits_until_it_is_resumed(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    on_sqlite.ok("jobs", "pause", "quick", "--reason", "not today")
    on_sqlite.ok("work", "--until-idle")
    assert states(on_sqlite) == {1: "pending"}
    assert on_sqlite.ok("status", "--json").json["waits"][0]["reason"] == "paused: not today"
    assert on_sqlite.ok("jobs", "resume", "quick", "--json").json["changed"]
    assert not on_sqlite.ok("jobs", "resume", "quick", "--json").json["changed"]
    on_sqlite.ok("work", "--until-idle")
    assert states(on_sqlite) == {}


def test_the_status_shows_which_sources_are_paused_and_how_to_resume_them(on_sqlite: CommandLine) -> None:
    assert "paused sources" not in on_sqlite.ok("status").out
    on_sqlite.ok("sources", "pause", "x", "--reason", "not today")
    shown = " ".join(on_sqlite.ok("status").out.split())
    assert "paused sources; `mistnet sources resume NAME` allows calls again" in shown
    assert "x by hand" in shown
    assert "not today" in shown
    (told,) = on_sqlite.ok("status", "--json").json["paused_sources"]
    assert (told["name"], told["paused_by"], told["pause_reason"]) == ("x", "operator", "not today")
    on_sqlite.ok("sources", "resume", "x")
    assert on_sqlite.ok("status", "--json").json["paused_sources"] == []


def test_an_accepted_alert_leaves_the_status_and_stays_in_the_list(on_sqlite: CommandLine) -> None:
    on_sqlite.sql(
        "INSERT INTO alerts (rule, subject, severity, message, opened_at, last_seen_at) VALUES "
        "('suspect_account', '11', 'warning', 'few are stored', "
        "'2026-03-01 00:00:00.000000', '2026-03-01 00:00:00.000000')"
    )
    assert "few are stored" in on_sqlite.ok("status").out
    assert "alert 1 is accepted" in on_sqlite.ok("alerts", "accept", "1").out
    shown = on_sqlite.ok("status").out
    assert "few are stored" not in shown
    assert "1 alert is accepted: `mistnet alerts` shows it" in shown
    (told,) = on_sqlite.ok("alerts", "--json").json["alerts"]
    assert (told["id"], told["accepted_by"]) == ("1", "command line")
    assert "there is no open alert 7" in on_sqlite("alerts", "accept", "7").err


def test_parked_jobs_are_counted_shown_and_let_in(on_sqlite: CommandLine) -> None:
    lines = "\n".join(json.dumps({"args": {"n": n}}) for n in range(60))
    added = on_sqlite("jobs", "add", "batch", "--from", "-", "--json", stdin=lines)
    assert added.json == {"created": 60, "duplicates": 0, "parked": 10}
    batch = next(kind for kind in on_sqlite.ok("status", "--json").json["kinds"] if kind["kind"] == "batch")
    assert (batch["parked"], batch["due"]) == (10, 50)
    on_sqlite.ok("work", "--until-idle")
    assert numbers(on_sqlite.sql("SELECT n FROM effects")) == list(range(60))


def test_the_doctor_finds_a_stuck_lease_and_frees_it(mistnet: CommandLine) -> None:
    mistnet.add("quick", n=1)
    mistnet.sql(f"UPDATE jobs SET state = 'running', worker = 'gone', fence = 1, lease_until = {LONG_AGO}")
    found = mistnet("doctor")
    assert (found.code, "1 job is leased to silent workers" in found.out) == (1, True)
    mended = mistnet.ok("doctor", "--fix", "--json").json
    assert mended["repaired"] == ["1 expired lease reclaimed"]
    assert states(mistnet) == {1: "retryable"}


def test_the_doctor_removes_what_is_not_needed_and_never_deletes_a_job(mistnet: CommandLine) -> None:
    mistnet.add("shaky", n=1)
    set_dead(mistnet, 1)
    mistnet.sql(f"INSERT INTO job_errors (job_id, fence, at, worker, error) VALUES (99, 1, {LONG_AGO}, 'w', 'e')")
    mistnet.sql(
        "INSERT INTO workers (name, host, pid, version, lanes, concurrency, running, draining, started_at, "
        f"seen_at) VALUES ('old', 'h', 1, 'v', 'l', 1, 0, false, {LONG_AGO}, {LONG_AGO})"
    )
    found = {each["name"]: each["level"] for each in mistnet.ok("doctor", "--json").json["findings"]}
    assert (found["errors"], found["workers"], found["gaps"]) == ("warn", "warn", "warn")
    mended = mistnet.ok("doctor", "--fix", "--json").json
    assert mended["repaired"] == ["1 error without a job deleted", "1 silent worker deleted"]
    assert states(mistnet) == {1: "dead"}


def test_the_doctor_tells_what_is_lacking_to_collect(on_sqlite: CommandLine) -> None:
    nothing = {each["name"]: each["level"] for each in on_sqlite.ok("doctor", "--json").json["findings"]}
    assert {nothing[name] for name in ("key for x", "worker", "budget", "disk", "clock")} == {"ok"}
    on_sqlite.ok("suggest", "ann")
    found = {each["name"]: each for each in on_sqlite.ok("doctor", "--json").json["findings"]}
    assert (found["key for x"]["level"], found["worker"]["level"]) == ("warn", "warn")
    assert found["worker"]["found"] == "1 job is due and no worker is running"
    keyed = {each["name"]: each for each in on_sqlite("doctor", "--json", MISTNET_X_API_KEY="k").json["findings"]}
    assert (keyed["key for x"]["level"], keyed["budget"]["level"]) == ("ok", "warn")
    assert "all is well" not in on_sqlite.ok("doctor").out


def test_a_new_database_is_readable_by_its_owner_alone(on_no_file: CommandLine) -> None:
    on_no_file.ok("db", "migrate")
    assert (on_no_file.folder / "queue.db").stat().st_mode & 0o777 == 0o600


def test_the_doctor_names_kinds_that_are_not_known_here(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    on_sqlite.sql("UPDATE jobs SET kind = 'strange'")
    assert "not known here: 1 strange" in on_sqlite.ok("doctor").out


def test_version_and_help_need_no_database(on_sqlite: CommandLine) -> None:
    for flag in ("--version", "--help"):
        assert "mistnet" in on_sqlite.ok(flag, MISTNET_DATABASE_URL="nonsense").out


def test_a_process_answers_its_shell_as_the_command_answers_here(on_sqlite: CommandLine) -> None:
    """The other tests run commands in their own process: it must make no difference."""
    on_sqlite.add("failing", n=1)
    assert on_sqlite.process("work", "--until-idle").code == 3
    lines = json.dumps({"args": {"n": "\u00e9"}})
    wrong = ("jobs", "add", "quick", "--from", "-")
    assert on_sqlite.process(*wrong, stdin=lines) == on_sqlite(*wrong, stdin=lines)
