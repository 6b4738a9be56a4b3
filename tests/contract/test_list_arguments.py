"""Lists on the command line: commas, blanks, repeated options and files mean the same in every command."""

from pathlib import Path

import pytest

from mistnet.cli.main import app as commands
from tests.harvests import run, told

WAYS = (["1,2"], ["1", "2"], ["1 2"], ["1,", "2"], ["1,2,1"])


@pytest.mark.parametrize("given", WAYS, ids=" | ".join)
@pytest.mark.parametrize("what", ["users", "posts"])
def test_ids_to_hydrate(sqlite_url: str, what: str, given: list[str]) -> None:
    made = told(run(commands, sqlite_url, "hydrate", what, *given, "--background", "--json"))
    assert made["jobs"]["created"] == 2


@pytest.mark.parametrize("content", ["1,2", "1 2\n", "1\n2\n", "id\n1\n2\n", "note,id\nx,1\ny,2\n"])
def test_ids_in_files(sqlite_url: str, tmp_path: Path, content: str) -> None:
    (tmp_path / "ids").write_text(content)
    more = ("--file", str(tmp_path / "ids"), "--background", "--json")
    assert told(run(commands, sqlite_url, "hydrate", "users", "3", *more))["jobs"]["created"] == 3


@pytest.mark.parametrize("command", ["retry", "cancel", "requeue"])
def test_ids_of_jobs(sqlite_url: str, command: str) -> None:
    refused = run(commands, sqlite_url, "jobs", command, "7,8", "9")
    assert refused.exit_code == 2
    assert ["there is no job 7" in refused.stderr, "there is no job 9" in refused.stderr] == [True, True]
    assert "'x' is not an id" in run(commands, sqlite_url, "jobs", command, "7,x").stderr


@pytest.mark.parametrize("command", ["retry", "cancel", "requeue"])
def test_ids_of_jobs_in_a_file(sqlite_url: str, tmp_path: Path, command: str) -> None:
    (tmp_path / "ids").write_text("id,note\n8,x\n9,y\n")
    refused = run(commands, sqlite_url, "jobs", command, "7", "--file", str(tmp_path / "ids"))
    assert [f"there is no job {each}" in refused.stderr for each in (7, 8, 9)] == [True, True, True]


@pytest.mark.parametrize("command", [("links", "crawl"), ("products", "refresh")], ids=" ".join)
def test_addresses_in_a_file(sqlite_url: str, tmp_path: Path, command: tuple[str, str]) -> None:
    """An address may have a comma. Ids stand beside addresses, as in arguments."""
    (tmp_path / "shops").write_text("https://a.example/x,y https://b.example/z\n41, 42\n")
    seen = []
    for known in ("https://a.example/x,y", "https://b.example/z", "41", "42"):
        (tmp_path / "one").write_text(known)
        seen.append(run(commands, sqlite_url, *command, "--file", str(tmp_path / "one")).stderr)
    first = run(commands, sqlite_url, *command, "--file", str(tmp_path / "shops")).stderr
    assert first == seen[0]
    assert ["https://a.example/x,y" in seen[0], "https://b.example/z" in seen[1]] == [True, True]
    assert ["41" in seen[2], "42" in seen[3]] == [True, True]
    missing = run(commands, sqlite_url, *command, "--file", str(tmp_path / "nowhere"))
    assert (missing.exit_code, "cannot read" in missing.stderr) == (2, True)


def test_ids_of_items(sqlite_url: str, tmp_path: Path) -> None:
    ids = [told(run(commands, sqlite_url, "items", "add", title, "--json"))["item"]["id"] for title in ("a", "b")]
    paused = told(run(commands, sqlite_url, "items", "pause", ",".join(map(str, ids)), "--json"))
    assert [each["id"] for each in paused["items"]] == ids
    (tmp_path / "ids").write_text(f"{ids[1]}\n")
    for command in ("resume", "ask", "pause", "remove"):
        done = told(run(commands, sqlite_url, "items", command, ids[0], "--file", str(tmp_path / "ids"), "--json"))
        assert [each if command == "ask" else each["id"] for each in done["items"]] == ids
    refused = run(commands, sqlite_url, "items", "pause", "nine")
    assert (refused.exit_code, "'nine' is no item's id" in refused.stderr) == (2, True)


@pytest.mark.parametrize("given", [["nowhere,x"], ["x nowhere"], ["x", "nowhere"]], ids=" | ".join)
def test_lanes(sqlite_url: str, given: list[str]) -> None:
    flags = [part for each in given for part in ("--lanes", each)]
    refused = run(commands, sqlite_url, "work", *flags, "--until-idle", MISTNET_X_API_KEY="key")
    assert (refused.exit_code, "there is no lane 'nowhere'" in (refused.stderr or str(refused.exception))) == (2, True)


@pytest.mark.parametrize("given", [["one,two"], ["one two"], ["one", "two"]], ids=" | ".join)
def test_segments_of_a_set(sqlite_url: str, given: list[str]) -> None:
    for name in ("one", "two"):
        told(run(commands, sqlite_url, "segments", "define", name, "--specified", "--json"))
    flags = [part for each in given for part in ("--union", each)]
    made = told(run(commands, sqlite_url, "segments", "define", "both", *flags, "--json"))
    assert made["segment"]["rule"]["of"] == ["one", "two"]


def test_handles(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "more").write_text("cid,@dan\n")
    more = ("--file", str(tmp_path / "more"), "--json")
    for command in (("suggest",), ("feeds", "add")):
        made = told(run(commands, sqlite_url, *command, "ann,@bea", *more))
        listed = made.get("suggestions") or made["feeds"]
        assert [each["handle"] for each in listed] == ["ann", "bea", "cid", "dan"]
    started = told(run(commands, sqlite_url, "runs", "start", "ann bea", *more))
    assert [each["username"] for each in started["run"]["report"]["accounts"]] == ["ann", "bea", "cid", "dan"]
