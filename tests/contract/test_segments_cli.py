"""The segments commands: what they say, what they refuse, and how they end."""

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from mistnet.cli import segments
from mistnet.cli.command import Invocation
from mistnet.cli.main import app as commands
from mistnet.cli.output import Output
from mistnet.graph.follows.model import Side
from tests.harvests import run
from tests.loops import LOOP
from tests.segmented import Workshop, ids, workshop
from tests.support import START

pytestmark = pytest.mark.common_sql


def call(url: str, *arguments: str) -> Any:
    """One command that must go well, as JSON."""
    result = run(commands, url, "segments", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(url: str, *arguments: str) -> str:
    result = run(commands, url, "segments", *arguments)
    told = result.stderr or str(result.exception)
    assert result.exit_code == 2, (result.stdout, told)
    return told


def prepared(url: str) -> None:
    async def prepare() -> None:
        async with workshop(url) as shop:
            await shop.people(1, 2, 3)
            await shop.follow((2, 1), (3, 1))
            await shop.synced_both()
            await shop.define("some", kind="specified_users")
            await shop.store.add_inputs("some", ids(1, 2), now=START)
            await shop.materialize("some")
            await shop.store.remove_inputs("some", ids(1))
            await shop.materialize("some")

    LOOP.run(prepare())


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--specified"], {"kind": "specified_users"}),
        (["--followers-of", "12"], {"kind": "followers", "subject": "12"}),
        (["--followed-by", "@user1"], {"kind": "followed", "subject": "1"}),
        (["--mutuals-of", "user1"], {"kind": "mutuals", "subject": "1"}),
        (["--unreciprocated-of", "https://x.com/user1"], {"kind": "unreciprocated_followed", "subject": "1"}),
        (["--union", "some, more"], {"kind": "union", "of": ["some", "more"]}),
        (["--difference", "some,more"], {"kind": "difference", "of": ["some", "more"]}),
        (["--rule", '{"kind": "followers", "subject": "@user1"}'], {"kind": "followers", "subject": "1"}),
        (
            ["--query", "coin", "--authors-in", "some", "--link", "ebay", "--within", "7d"],
            {"kind": "posts", "query": "coin", "authors_in": "some", "link": "ebay", "within_seconds": 604_800.0},
        ),
    ],
)
def test_a_rule_can_be_said_in_options(sqlite_url: str, options: list[str], rule: dict[str, Any]) -> None:
    prepared(sqlite_url)
    call(sqlite_url, "define", "more", "--specified")
    told = call(sqlite_url, "define", "new", *options, "--every", "1d", "--fresh", "90m")
    assert (told["created"], told["segment"]["rule"]) == (True, rule)
    assert (told["segment"]["every_seconds"], told["segment"]["fresh_seconds"]) == (86_400, 5_400)
    assert call(sqlite_url, "define", "new", *options, "--every", "24h", "--fresh", "90m")["changed"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["define", "new"], "say how the members are found"),
        (["define", "new", "--specified", "--followers-of", "1"], "give one kind of rule only"),
        (["define", "New", "--specified"], "a name begins with a letter"),
        (["define", "new", "--followers-of", "not a handle"], "1 to 15 letters"),
        (["define", "new", "--followers-of", "@stranger"], "MISTNET_X_API_KEY"),
        (["define", "new", "--specified", "--every", "soon"], "not a time span"),
        (["define", "new", "--specified", "--every", "5s"], "every_seconds must be between"),
        (["define", "new", "--rule", "{"], "cannot be read"),
        (["define", "new", "--union", "some,nobody"], "there is no segment 'nobody'"),
        (["define", "some", "--query", "coin"], "choose another name"),
        (["show", "sone"], "Did you mean 'some'"),
        (["inputs", "add", "some", "1,x-1"], "nothing was changed"),
        (["inputs", "add", "some", "404"], "MISTNET_X_API_KEY"),
        (["inputs", "add", "some", "@nobody"], "MISTNET_X_API_KEY"),
        (["export", "some", "--format", "parquet"], "--output"),
        (["members", "some", "--as-of", "yesterday"], "the time must be like"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_that_says_what_to_do(
    sqlite_url: str, arguments: list[str], said: str
) -> None:
    prepared(sqlite_url)
    assert said in refused(sqlite_url, *arguments)


def test_members_events_and_inputs_are_shown_with_ids_as_strings(url: str) -> None:
    prepared(url)
    assert [each["user_id"] for each in call(url, "members", "some")["members"]] == ["2"]
    before = call(url, "members", "some", "--as-of", "2026-03-01T12:00:01Z", "--limit", "1")
    assert [each["user_id"] for each in before["members"]] == ["1"]
    rest = call(url, "members", "some", "--as-of", "2026-03-01T12:00:01Z", "--after", before["next_after"])
    assert [each["user_id"] for each in rest["members"]] == ["2"]
    events = call(url, "events", "some", "--limit", "2")
    assert [(each["kind"], each["user_id"]) for each in events["events"]] == [("left", "1")]
    assert call(url, "events", "some", "--before-id", events["events"][0]["id"])["events"] == []
    assert call(url, "inputs", "add", "some", "2", "3")["added"] == 1
    assert [each["user_id"] for each in call(url, "inputs", "list", "some")["inputs"]] == ["2", "3"]
    assert call(url, "inputs", "remove", "some", "3,9")["removed"] == 1
    assert call(url, "inputs", "add", "some", "1,@user2", "@user3")["added"] == 2, "by id or by name"
    assert call(url, "inputs", "remove", "some", "1 3")["removed"] == 2
    (listed,) = call(url, "list")["segments"]
    assert (listed["name"], listed["members"], listed["in_words"]) == ("some", 1, "users named one by one")
    shown = call(url, "show", "some")
    assert [(each["members"], each["entered"], each["departed"]) for each in shown["snapshots"]] == [
        (1, 0, 1),
        (2, 0, 0),
    ]
    assert shown["known_since"] == shown["snapshots"][-1]["at"] == events["known_since"]
    plain = run(commands, url, "segments", "show", "some").stdout
    assert "known since 2026-03-01" in plain
    assert "users named one by one" in plain
    call(url, "define", "fans", "--followers-of", "@user2")
    assert "followers of @user2" in run(commands, url, "segments", "list").stdout


def test_members_are_written_out_as_lines_and_as_a_table(url: str, tmp_path: Path) -> None:
    prepared(url)
    lines = run(commands, url, "segments", "export", "some", "--as-of", "2026-03-01T12:00:01Z")
    assert [json.loads(line)["user_id"] for line in lines.stdout.splitlines()] == ["1", "2"]
    place = tmp_path / "some.csv"
    told = call(url, "export", "some", "--format", "csv", "--output", str(place))
    assert told["rows"] == 1
    (row,) = csv.DictReader(io.StringIO(place.read_text()))
    assert (row["platform"], row["user_id"], row["handle"], row["since"][-1]) == ("x", "2", "user2", "Z")
    assert "--force" in refused(url, "export", "some", "--format", "csv", "--output", str(place))


def test_switching_off_and_on(url: str) -> None:
    prepared(url)
    assert call(url, "disable", "some")["segment"]["enabled"] is False
    assert "is disabled" in refused(url, "materialize", "some")
    assert call(url, "enable", "some")["segment"]["enabled"] is True
    assert call(url, "materialize", "some")["created"] is True
    assert call(url, "materialize", "some")["created"] is False
    assert call(url, "show", "some")["job"]["state"] == "pending"
    again = run(commands, url, "segments", "materialize", "some").stdout
    assert "segment some is already waiting to be materialized" in again, "no worker has run the job yet"


async def waited(shop: Workshop, name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the command that waits, while a worker runs."""
    invocation = Invocation(settings=shop.app.settings, out=Output(as_json=False))
    asked = await shop.segments.materialize(name, asked_by="a test", job_writer=shop.app.job_writer)
    waiting = asyncio.create_task(segments.wait_until_materialized(invocation, shop.app, asked))
    await asyncio.sleep(0)
    await shop.step()
    code = await waiting
    said = capsys.readouterr()
    return code, said.out + said.err


async def test_who_waits_is_told_what_came_of_it(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.cli.segments._POLL_SECONDS", 0.02)
    async with workshop(url) as shop:
        await shop.people(1, 2)
        await shop.follow((2, 1))
        await shop.define("fans", kind="followers", subject="1")
        ingest = await shop.synced(Side.FOLLOWERS)
        assert ingest
        code, said = await waited(shop, "fans", capsys)
        assert (code, "1 member; this was the first time" in said) == (0, True)
        await shop.define("frozen", kind="specified_users")
        await shop.define("both", kind="union", of=["fans", "frozen"])
        await shop.store.disable("frozen", now=START)
        code, said = await waited(shop, "both", capsys)
        assert (code, "both builds on frozen, which is disabled" in said) == (3, True)


async def test_who_waits_without_a_worker_is_told_so_and_not_kept(
    sqlite_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.cli.segments._POLL_SECONDS", 0.01)
    monkeypatch.setattr("mistnet.cli.segments._WITHOUT_WORKER_SECONDS", 0.05)
    async with workshop(sqlite_url) as shop:
        await shop.define("some", kind="specified_users")
        invocation = Invocation(settings=shop.app.settings, out=Output(as_json=False))
        asked = await shop.segments.materialize("some", asked_by="a test", job_writer=shop.app.job_writer)
        assert await segments.wait_until_materialized(invocation, shop.app, asked) == 124
        first, last = capsys.readouterr().err.splitlines()
        assert "no worker was seen recently: `mistnet work` starts one" in first
        assert "segment some is not materialized yet: its job waits" in last
        assert await segments.wait_until_materialized(invocation, shop.app, asked, within=0.02) == 124


def test_a_time_to_wait_goes_with_waiting(sqlite_url: str) -> None:
    prepared(sqlite_url)
    assert "--wait" in refused(sqlite_url, "materialize", "some", "--timeout", "5m")
