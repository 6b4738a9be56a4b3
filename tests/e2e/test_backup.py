"""A SQLite database is copied while it is written, and put back; a PostgreSQL one as docs/upkeep.md says."""

import os
import re
import shlex
import sqlite3
import stat
import subprocess
import threading
from contextlib import closing
from pathlib import Path

from tests.e2e.conftest import CommandLine, until
from tests.services.postgres import find_binaries

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upkeep.md"


def file_of(command: CommandLine) -> Path:
    return Path(command.url.removeprefix("sqlite:///"))


def keys(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as database:
        return [key for (key,) in database.execute("SELECT key FROM jobs ORDER BY id")]


def test_a_copy_made_while_others_write_is_one_moment_and_can_be_put_back(on_sqlite: CommandLine) -> None:
    file, copy = file_of(on_sqlite), on_sqlite.folder / "copy.db"
    on_sqlite.ok("suggest", "ann")
    done = threading.Event()

    def write() -> None:
        # Each transaction adds a pair of rows: a copy with an odd number of them would be no single moment.
        with closing(sqlite3.connect(file, timeout=30)) as database:
            number = 0
            while not done.is_set():
                number += 1
                with database:
                    for half in ("first", "second"):
                        database.execute(
                            "INSERT INTO hosts (host, next_at) VALUES (?, '2000-01-01 00:00:00.000000')",
                            (f"{half}-{number}",),
                        )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        shown = on_sqlite.ok("db", "backup", str(copy), "--json").json
    finally:
        done.set()
        writer.join()
    assert shown["bytes"] == copy.stat().st_size
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as database:
        hosts = [host for (host,) in database.execute("SELECT host FROM hosts")]
    assert len(hosts) % 2 == 0
    before = keys(file)
    assert keys(copy) == before

    on_sqlite.ok("suggest", "bea")
    assert keys(file) != before
    restored = on_sqlite.ok("db", "restore", str(copy), "--json").json
    assert keys(file) == before
    assert len(keys(Path(restored["kept"]))) == len(before) + 1
    assert on_sqlite.ok("suggest", "--list", "--json").json["suggestions"][0]["handle"] == "ann"


def test_a_backup_overwrites_nothing_and_leaves_nothing_half_written(on_sqlite: CommandLine) -> None:
    taken = on_sqlite.folder / "taken.db"
    taken.write_text("mine")
    refused = on_sqlite("db", "backup", str(taken))
    assert (refused.code, "exists already" in refused.err, taken.read_text()) == (2, True, "mine")
    assert "there is no folder" in on_sqlite("db", "backup", str(on_sqlite.folder / "nowhere" / "a.db")).err

    file_of(on_sqlite).write_bytes(b"not a database" * 1000)
    broken = on_sqlite("db", "backup", str(on_sqlite.folder / "new.db"))
    assert broken.code == 1
    assert "is not a database" in broken.err
    assert sorted(each.name for each in on_sqlite.folder.glob("new.db*")) == []


def test_a_restore_refuses_other_files_and_a_database_in_use(on_sqlite: CommandLine) -> None:
    copy = on_sqlite.folder / "copy.db"
    on_sqlite.ok("db", "backup", str(copy))
    other = on_sqlite.folder / "other.db"
    with closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE birds (name TEXT)")
    assert on_sqlite("db", "restore", str(other)).code == 1

    on_sqlite.start("work", MISTNET_X_API_KEY="")
    until(lambda: on_sqlite.sql("SELECT name FROM workers"))
    refused = on_sqlite("db", "restore", str(copy))
    assert (refused.code, "Stop all mistnet processes" in refused.err) == (2, True), refused


def test_a_postgresql_database_is_dumped_and_restored_as_the_page_says(on_postgres: CommandLine) -> None:
    (commands,) = re.findall(r"^\| PostgreSQL \| `(.+)` \| `(.+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    places = {"FILE": str(on_postgres.folder / "mistnet.dump"), "URL": on_postgres.url}
    dump, restore = ([places.get(word, word) for word in shlex.split(each)] for each in commands)
    path = {**os.environ, "PATH": f"{find_binaries()}{os.pathsep}{os.environ['PATH']}"}

    def tracked() -> set[str]:
        listed = on_postgres.ok("suggest", "--list", "--json").json["suggestions"]
        return {each["handle"] for each in listed}

    on_postgres.ok("suggest", "ann")
    subprocess.run(dump, env=path, check=True, capture_output=True)
    on_postgres.ok("suggest", "bea")
    assert tracked() == {"ann", "bea"}
    on_postgres._let_go()
    subprocess.run(restore, env=path, check=True, capture_output=True)
    assert tracked() == {"ann"}
    assert on_postgres.ok("db", "check").code == 0
    on_postgres.ok("suggest", "cid")
    assert tracked() == {"ann", "cid"}, "numbers go on where they were"
