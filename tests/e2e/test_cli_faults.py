"""Wrong input and broken surroundings: one line that says what to do, an exit code that is not 0, nothing lost."""

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mistnet.kit import database
from tests.commands import DEADLINE_SECONDS, Ran, command_line
from tests.e2e.conftest import CommandLine, until
from tests.e2e.slips import is_one_line, list_misreported
from tests.services.postgres import PostgresCluster

SECRET = "geheim-ist-geheim"
SLIPS = (
    (("jobs", "add", "quikc", "--args", '{"n": 1}'), "Did you mean 'quick'?"),
    (("jobs", "add", "quick", "--args", '{"n": "x"}'), "Expected `int`, got `str`"),
    (("jobs", "add", "quick", "--args", '{"n": 1, "m": 2}'), "unknown field `m`"),
    (("jobs", "add", "quick", "--args", '{"n": 1'), "do not fit the kind 'quick'"),
    (("jobs", "add", "quick", "--args", ""), "do not fit the kind 'quick'"),
    (("jobs", "add", "quick", "--args", '{"n": 1}', "--lane", "moon"), "it has no lane 'moon'"),
    (("jobs", "add", "quick", "--args", '{"n": 1}', "--in", "-5"), "0 or more"),
    (("jobs", "add", "quick", "--args", '{"n": 1}', "--in", "1e300"), "the time must be like"),
    (("jobs", "add", "quick", "--args", '{"n": 1}', "--run-at", "soon"), "the time must be like"),
    (
        ("jobs", "add", "quick", "--args", '{"n": 1}', "--run-at", "2027-01-01", "--in", "1"),
        "exclude each other",
    ),
    (("jobs", "add", "quick", "--args", '{"n": 1}', "--key", "a\udcffb"), "not valid Unicode"),
    (("jobs", "add", "quick", "--from", "nowhere.jsonl"), "No such file"),
    (("jobs", "add"), "Missing argument"),
    (("jobs", "pause", "quikc"), "Did you mean 'quick'?"),
    (("jobs", "resume", "quikc"), "Did you mean 'quick'?"),
    (("jobs", "list", "--kind", "quikc"), "Did you mean 'quick'?"),
    (("jobs", "list", "--state", "sleeping"), "--state"),
    (("jobs", "list", "--limit", "0"), "--limit"),
    (("jobs", "show", "one"), "ID"),
    (("jobs", "show", "99999999999999999999"), "ID"),
    (("jobs", "show", "7"), "there is no job 7"),
    (("jobs", "retry", "7"), "there is no job 7"),
    (("jobs", "cancel", "7"), "there is no job 7"),
    (("jobs", "requeue"), "say which"),
    (("jobs", "requeue", "--all", "--kind", "quick"), "say which"),
    (("work", "--lanes", "tyo"), "Did you mean 'toy'?"),
    (("work", "--processes", "0"), "--processes"),
    (("status", "--watch"), "--watch needs a terminal"),
    (("status", "--log-level", "LOUD"), "log_level"),
    (("statsu",), "No such command"),
    (("jobs", "list", "--colour"), "No such option"),
)
LONG = "9" * 5_000
PADDED = "0" * 19 + "1" + "9" * 4_990
LONG_NUMBERS = (
    (("jobs", "show", LONG), "ID"),
    (("jobs", "list", "--limit", LONG), "--limit"),
    (("jobs", "list", "--before-id", LONG), "--before-id"),
    (("jobs", "add", "quick", "--args", f'{{"n": {LONG}}}'), "do not fit"),
    (("jobs", "add", "quick", "--args", '{"n": 1}', "--in", LONG), "--in must be"),
    (("hydrate", "event", LONG), "ID"),
    (("items", "show", PADDED), "no item's id"),
    (("items", "versions", LONG), "POINT"),
    (("items", "versions", "1" * 30), "POINT"),
    (("links", "show", LONG), "no link"),
    (("products", "show", LONG), "no product"),
    (("products", "lineage", LONG), "no product"),
    (("products", "lineage", "1", "--before", f"1.{LONG}"), "--before"),
    (("products", "of", LONG), "no collected data mentions"),
    (("prices", "unwatch", LONG), "ID"),
    (("prices", "watch", "--item", LONG, "--change", "5"), "--item"),
    (("follows", "list", LONG), "no collected data mentions"),
    (("follows", "list", PADDED), "no collected data mentions"),
    (("follows", "sync", PADDED), "not a user id"),
    (("hydrate", "users", PADDED), "not an id"),
    (("hydrate", "posts", LONG), "not an id"),
    (("coverage", "--conversation", LONG), "--conversation"),
    (("export", "graph", "--edges", "follows", "--around", PADDED, "--output", "g.gexf"), "no stored user"),
    (("search", "coin", "--limit", LONG), "--limit"),
    (("segments", "define", "fans", "--followers-of", LONG), "fans"),
    (("segments", "define", "fans", "--followers-of", PADDED), "fans"),
    (("tokens", "revoke", LONG), "ID"),
    (("serve", "--port", LONG), "--port"),
    (("sources", "set", "x", "--day-credits", LONG), "--day-credits"),
    (("work", "--concurrency", LONG), "--concurrency"),
    (("work", "--concurrency", "1" * 30), "--concurrency"),
)
BAD_LINES = (
    (b'{"args": {"n": "two"}}', "Expected `int`, got `str`"),
    (b'{"args": {"n": 2}', "line 2"),
    (b'{"arg": {"n": 2}}', "unknown field `arg`"),
    (b'{"args": {"n": 2}, "key": "a\\u0000b"}', "NUL"),
    (b'{"args": {"n": 2}}\x00', "line 2"),
    (b'{"args": {"n": 2}, "key": "\xff"}', "line 2"),
    (b'{"args": {"n": 2}, "run_at": "soon"}', "line 2"),
)
BAD_FILES = (
    ("concurency = 3", "Did you mean 'concurrency'?"),
    ("concurrency = 0", "greater than or equal to 1"),
    ("concurrency = ", "not valid TOML"),
    ("[kinds.quick]\nbacth = 3", "Did you mean 'batch'?"),
    ("[kinds.quikc]\nbatch = 3", "Did you mean 'quick'?"),
    ("lease_seconds = 5", "heartbeat_seconds"),
    ('log_level = "\x00"', "not valid TOML"),
)
BAD_VARIABLES = (
    ("MISTNET_CONCURENCY", "3", "Did you mean 'MISTNET_CONCURRENCY'?"),
    ("MISTNET_CONCURRENCY", "many", "MISTNET_CONCURRENCY"),
    ("MISTNET_LEASE_SECONDS", "nan", "MISTNET_LEASE_SECONDS"),
    ("MISTNET_PLUGINS", '["tests.plugins.toy:plugin"', "with commas between, or as JSON"),
    ("MISTNET_PLUGINS", '["tests.plugins.toy"]', "module:function"),
    ("MISTNET_PLUGINS", '["tests.plugins.nowhere:plugin"]', "cannot be used"),
    ("MISTNET_PLUGINS", '["tests.plugins.toy:LANE"]', "LANE is not a function"),
    ("MISTNET_PLUGINS", '["os:getcwd"]', "not a Plugin"),
)
AT_ONCE = {"MISTNET_DATABASE_WAIT_SECONDS": "0"}
"""A worker would wait for a while for a database that does not answer."""
READING = (
    ("status",),
    ("work", "--until-idle"),
    ("tokens", "list"),
    ("jobs", "list"),
    ("jobs", "add", "quick", "--args", '{"n": 1}'),
    ("suggest", "ann"),
    ("untrack", "ann"),
    ("coverage",),
    ("spend",),
    ("sources",),
    ("search", "coin"),
    ("db", "check"),
    ("db", "check", "--json"),
    ("hydrate", "users", "7", "--background"),
)


def one_line(done: Ran, *said: str, code: int = 2) -> None:
    assert is_one_line(done, *said, code=code), done


def test_a_slip_on_the_command_line_is_told_in_one_line(on_sqlite: CommandLine) -> None:
    assert list_misreported(on_sqlite, SLIPS) == []


def test_numbers_of_5000_digits_are_told_in_one_short_line(on_sqlite: CommandLine) -> None:
    assert list_misreported(on_sqlite, LONG_NUMBERS) == []
    assert len(on_sqlite("jobs", "show", LONG).err) < 500


def test_one_bad_line_of_a_file_is_named_and_nothing_is_stored(on_sqlite: CommandLine) -> None:
    for line, said in BAD_LINES:
        (on_sqlite.folder / "jobs.jsonl").write_bytes(b'{"args": {"n": 1}}\n' + line + b'\n{"args": {"n": 3}}\n')
        one_line(on_sqlite("jobs", "add", "quick", "--from", "jobs.jsonl"), "jobs.jsonl line 2", said)
    assert on_sqlite.sql("SELECT id FROM jobs") == []


def test_arguments_may_hold_a_nul_character(mistnet: CommandLine) -> None:
    mistnet.ok("jobs", "add", "tell", "--args", '{"words": "a\\u0000b"}')
    assert mistnet("work", "--until-idle").code == 0
    assert mistnet.ok("jobs", "show", "1", "--json").json["args"] == {"words": "a\x00b"}


def test_a_closed_port_is_told_without_the_password(on_sqlite: CommandLine) -> None:
    on_sqlite.settings |= AT_ONCE
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://u:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/x"
        for command in (("status",), ("work",), ("jobs", "list"), ("db", "migrate")):
            done = on_sqlite(*command, "--database-url", url)
            one_line(done, "does not answer", "Check MISTNET_DATABASE_URL", code=1)
            assert SECRET not in done.err + done.out


def test_a_server_that_is_silent_is_given_up_on(on_sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    on_sqlite.settings |= AT_ONCE
    monkeypatch.setattr(database, "_CONNECT_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"postgresql://u:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/x"
        one_line(on_sqlite("status", "--database-url", url), "does not answer", code=1)


def test_a_wrong_password_is_told_without_the_password(on_sqlite: CommandLine) -> None:
    on_sqlite.settings |= AT_ONCE
    with PostgresCluster(fast=True) as cluster:
        (cluster.folder / "data" / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
        os.kill(cluster.pid, signal.SIGHUP)
        url = cluster.dsn().replace("mistnet@", f"mistnet:{SECRET}@")
        until(lambda: on_sqlite("db", "check", "--database-url", url).err.count("password authentication failed"))
        for command in (("status",), ("work",), ("db", "migrate")):
            done = on_sqlite(*command, "--database-url", url)
            one_line(done, "password authentication failed", "Check MISTNET_DATABASE_URL", code=1)
            assert SECRET not in done.err + done.out


def test_a_database_that_is_not_there_is_told(on_sqlite: CommandLine, fresh_postgres: str) -> None:
    on_sqlite.settings |= AT_ONCE
    url = f"{fresh_postgres}_not"
    one_line(on_sqlite("status", "--database-url", url), "does not exist", code=1)
    doctor = on_sqlite("doctor", "--database-url", url)
    assert (doctor.code, "does not exist" in doctor.out) == (1, True)


def test_a_wrong_scheme_and_no_url_at_all_are_told(on_sqlite: CommandLine) -> None:
    one_line(on_sqlite("status", "--database-url", f"mysql://u:{SECRET}@h/x"), "no driver for 'mysql'")
    one_line(on_sqlite("status", "--database-url", "queue.db"), "use sqlite:///FILE")
    one_line(on_sqlite("status", "--database-url", "sqlite:////nowhere/queue.db"), "no database at /nowhere/", code=1)
    one_line(on_sqlite("db", "migrate", "--database-url", "sqlite:////nowhere/queue.db"), "unable to open", code=1)


def test_an_unmigrated_database_says_which_command_helps(on_sqlite: CommandLine, fresh_postgres: str) -> None:
    for command in (("status",), ("work", "--until-idle"), ("jobs", "list"), ("db", "check")):
        done = on_sqlite(*command, "--database-url", fresh_postgres)
        one_line(done, "run `mistnet db migrate`", code=1)
    assert on_sqlite("doctor", "--database-url", fresh_postgres).code == 1


def test_a_database_of_a_newer_version_is_left_alone(on_sqlite: CommandLine) -> None:
    on_sqlite.sql("UPDATE alembic_version SET version_num = '9999'")
    for command in (("status",), ("work",), ("db", "migrate"), ("db", "check")):
        one_line(on_sqlite(*command), "upgrade mistnet", code=1)
    assert on_sqlite("doctor").code == 1
    assert on_sqlite.sql("SELECT version_num FROM alembic_version") == [{"version_num": "9999"}]


def test_a_file_that_is_no_database_is_left_as_it_is(on_no_file: CommandLine) -> None:
    letter = on_no_file.folder / "queue.db"
    letter.write_text("dear reader, " * 200)
    for command in (("status",), ("work",), ("db", "migrate")):
        one_line(on_no_file(*command), "not a database", code=1)
    assert letter.read_text() == "dear reader, " * 200


def test_a_command_that_reads_makes_no_database_and_says_which_file_it_looked_for(on_no_file: CommandLine) -> None:
    wanted = on_no_file.folder / "queue.db"
    for command in READING:
        one_line(on_no_file(*command), f"there is no database at {wanted}.", "`mistnet init`", "--database-url", code=1)
    seen = on_no_file("doctor")
    assert f"there is no database at {wanted}." in " ".join(seen.out.split()), seen
    assert (seen.code, list(on_no_file.folder.iterdir())) == (1, [])


def test_a_relative_database_is_told_with_the_folder_it_was_looked_for_in(on_no_file: CommandLine) -> None:
    told = on_no_file("status", MISTNET_DATABASE_URL="sqlite:///mistnet.db")
    one_line(told, f"there is no database at {on_no_file.folder / 'mistnet.db'}.", code=1)


def test_a_database_of_an_older_version_is_told_apart_from_one_that_is_not_there(on_no_file: CommandLine) -> None:
    on_no_file.ok("db", "migrate")
    on_no_file.sql("UPDATE alembic_version SET version_num = '0001'")
    one_line(on_no_file("status"), "is at revision 0001", "run `mistnet db migrate` with an earlier mistnet", code=1)
    one_line(
        on_no_file("track", "ann"), "is at revision 0001", "run `mistnet db migrate` with an earlier mistnet", code=1
    )


def test_tracking_an_account_in_a_new_folder_makes_the_database(on_no_file: CommandLine) -> None:
    on_no_file.ok("track", "ann")
    assert on_no_file.ok("status", "--json").json["kinds"]


def test_a_database_with_foreign_tables_is_not_mixed_with_ours(on_no_file: CommandLine) -> None:
    on_no_file.sql("CREATE TABLE jobs (title text)")
    one_line(on_no_file("db", "migrate"), "use a database of its own", code=1)


def test_a_slip_in_the_file_of_settings_is_told(on_sqlite: CommandLine) -> None:
    for content, said in BAD_FILES:
        (on_sqlite.folder / "mistnet.toml").write_text(content)
        one_line(on_sqlite("jobs", "list"), said)


def test_a_slip_in_the_environment_is_told(on_sqlite: CommandLine) -> None:
    for name, value, said in BAD_VARIABLES:
        one_line(on_sqlite("jobs", "list", **{name: value}), said)


def test_a_metrics_port_that_is_taken_is_told(on_sqlite: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        one_line(on_sqlite("work", "--until-idle", "--metrics-port", port), f"port {port} cannot be used")


def test_a_reader_that_leaves_early_is_no_error(on_sqlite: CommandLine) -> None:
    on_sqlite.add("quick", n=1)
    listing = on_sqlite.start("jobs", "list")
    assert listing.stdout is not None
    listing.stdout.close()
    assert listing.wait(timeout=DEADLINE_SECONDS) == 141
    assert listing.stderr is not None
    assert listing.stderr.read() == ""


BROKEN = """
from mistnet.app import Plugin

class Kinds(list):
    def __iter__(self):
        raise RuntimeError("token=abcdef123456")

def plugin():
    return Plugin(kinds=Kinds())
"""


def test_an_unforeseen_fault_is_one_line_and_a_traceback_only_when_asked_for(
    on_sqlite: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "broken", importlib.import_module("broken"))
    settings = {"MISTNET_PLUGINS": json.dumps(["broken:plugin"])}
    done = on_sqlite("jobs", "list", **settings)
    one_line(done, "this is a bug", "MISTNET_LOG_LEVEL=DEBUG", code=70)
    loud = on_sqlite("jobs", "list", MISTNET_LOG_LEVEL="DEBUG", **settings)
    assert (loud.code, "Traceback" in loud.err) == (70, True)
    assert "abcdef123456" not in done.err + loud.err


@pytest.mark.parametrize("command", [("db", "check", "--json"), ("--help",), ("--version",)])
def test_output_that_cannot_be_written_is_told(on_sqlite: CommandLine, command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command_line(*command),
            cwd=on_sqlite.folder,
            env=on_sqlite.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    told = "mistnet: error: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told), done
