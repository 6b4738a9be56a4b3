"""Payloads that could not be read: kept, counted, and read again when the decoder can."""

import json
from typing import Any

import pytest

from mistnet.app import App
from mistnet.cli.coverage import coverage
from mistnet.cli.doctor import doctor
from mistnet.queue.store.writes import Writers
from mistnet.social.accounts import AccountTracked
from mistnet.social.model import Unreadable, UserId, X
from mistnet.social.store.quarantine import KeptPayload, Quarantine, ReparseResult
from mistnet.sources.collecting import WRITERS, reparse_all
from tests.harvests import change, open_harvest, post, rows, run, tell, told, user
from tests.loops import LOOP
from tests.support import TurnedClock

pytestmark = pytest.mark.common_sql

AUTHOR = {"id": "11", "userName": "ann", "name": "Ann"}
POST = {"id": "500", "text": "hello", "createdAt": "Fri Jul 31 22:22:43 +0000 2026", "author": AUTHOR, "likeCount": 3}
SEARCH = "tweet/advanced_search"


def kept(payload: object, *, endpoint: str = SEARCH, problem: str = "an older decoder's trouble") -> Unreadable:
    """A payload that could not be read."""
    return Unreadable(platform=X, endpoint=endpoint, problem=problem, payload=json.dumps(payload).encode())


async def unresolved(app: App) -> list[Any]:
    return [row[0] for row in await rows(app, "SELECT problem FROM quarantine WHERE resolved_at IS NULL ORDER BY id")]


async def test_what_can_be_read_now_is_written_and_resolved_and_the_rest_stays(url: str) -> None:
    async with open_harvest(url) as app:
        bad = {**POST, "id": "501", "createdAt": "yesterday"}
        await tell(app, kept(POST), kept(bad, problem="still bad"), kept({"id": "x"}, endpoint="user/followers"))
        done = await reparse_all(app)
        assert done.resolved == {"an older decoder's trouble": 1}
        assert done.left == {"not a time: 'yesterday'": 1, "id is not a number: 'x'": 1}
        assert await rows(app, "SELECT id, author_id, likes FROM posts") == [(500, 11, 3)]
        assert await unresolved(app) == ["still bad", "an older decoder's trouble"]
        assert await Quarantine(app.database).count() == 2
        again = await reparse_all(app)
        assert (again.resolved, sum(again.left.values())) == ({}, 2)


async def test_users_are_read_by_the_decoder_of_their_endpoint(url: str) -> None:
    async with open_harvest(url) as app:
        listed = {"id": "12", "screen_name": "bob", "name": "Bob"}
        profile = {"id": "13", "userName": "cat", "description": "rings birds"}
        await tell(app, kept(listed, endpoint="user/followers"), kept(profile, endpoint="user/batch_info_by_ids"))
        assert sum((await reparse_all(app)).resolved.values()) == 2
        found = await rows(app, "SELECT id, handle, detail FROM users ORDER BY id")
        assert found == [(12, "bob", "listed"), (13, "cat", "profile")]


async def test_a_payload_of_an_unknown_endpoint_or_of_hostile_depth_stays(url: str) -> None:
    async with open_harvest(url) as app:
        deep = Unreadable(platform=X, endpoint="tweets", problem="deep", payload=b"[" * 5000 + b"]" * 5000)
        await tell(app, kept(POST, endpoint="user/horoscope"), deep)
        done = await reparse_all(app)
        assert (done.resolved, len(done.left), await Quarantine(app.database).count()) == ({}, 2, 2)


async def test_an_old_payload_does_not_turn_back_what_is_known_better(url: str) -> None:
    clock = TurnedClock()
    async with open_harvest(url, clock=clock) as app:
        await tell(app, kept(POST), kept({**POST, "id": "502"}))
        clock.turn(days=1)
        await tell(app, user(11, "annie"), post(500, 11))
        await change(app, "UPDATE posts SET likes = 90")
        await reparse_all(app)
        assert await rows(app, "SELECT handle FROM users") == [("annie",)]
        assert await rows(app, "SELECT id, likes FROM posts ORDER BY id") == [(500, 90), (502, 3)]
        assert await rows(app, "SELECT handle FROM user_versions") == []


async def test_any_number_of_payloads_is_read_a_slice_at_a_time(url: str) -> None:
    async with open_harvest(url) as app:
        bad = [kept({"id": str(n)}, problem="bad") for n in range(200)]
        good = [kept({**POST, "id": str(1000 + n)}) for n in range(450)]
        await tell(app, *(each for pair in zip(bad, good, strict=False) for each in pair), *good[200:])
        done = await reparse_all(app)
        assert (sum(done.resolved.values()), sum(done.left.values())) == (450, 200)
        assert await rows(app, "SELECT count(*) FROM posts") == [(450,)]


async def test_one_payload_the_database_refuses_does_not_keep_the_others(url: str) -> None:
    def read(found: KeptPayload) -> ReparseResult:
        """Post 501 without its author, which no database takes."""
        told_of = json.loads(found.payload)
        author = [] if told_of["id"] == "501" else [user(11)]
        return ReparseResult(writes=[*author, post(int(told_of["id"]), 99 if told_of["id"] == "501" else 11)])

    async with open_harvest(url) as app:
        await tell(app, *(kept({"id": each}) for each in ("500", "501", "502")))
        done = await Quarantine(app.database).reparse(read, Writers(WRITERS), now=app.database.clock.now())
        assert (sum(done.resolved.values()), sum(done.left.values())) == (2, 1)
        assert await rows(app, "SELECT id FROM posts ORDER BY id") == [(500,), (502,)]
        assert await rows(app, "SELECT count(*) FROM quarantine WHERE resolved_at IS NULL") == [(1,)]


async def test_payloads_that_name_an_account_are_counted(url: str) -> None:
    async with open_harvest(url) as app:
        await tell(app, kept(POST), kept({**POST, "author": {"id": "111"}}))
        quarantine = Quarantine(app.database)
        assert [await quarantine.naming(UserId(each)) for each in (11, 111, 1)] == [1, 1, 0]
        await reparse_all(app)
        assert await quarantine.naming(UserId(11)) == 0


def test_the_doctor_finds_unread_payloads_and_reads_them(url: str) -> None:
    async def prepare() -> None:
        async with open_harvest(url) as app:
            await tell(app, user(11), AccountTracked(platform=X, user_id=UserId(11)), kept(POST), kept({}))

    def finding() -> Any:
        return next(each for each in told(run(doctor, url, "--json"))["findings"] if each["name"] == "quarantine")

    LOOP.run(prepare())
    assert (finding()["level"], finding()["found"]) == ("warn", "2 payloads could not be read and are kept")
    assert "1 payload in quarantine" in run(coverage, url, "ann").stdout
    shown = run(doctor, url, "--reparse")
    assert shown.exit_code == 0
    assert "read now" in shown.stdout
    assert "still unreadable" in shown.stdout
    assert finding()["found"] == "1 payload could not be read and is kept"
    done = told(run(doctor, url, "--reparse", "--json"))["reparsed"]
    assert (done["resolved"], sum(done["left"].values())) == ({}, 1)
