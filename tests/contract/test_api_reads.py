"""The API's lists and documents, over HTTP, on every database."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from fastapi.dependencies.models import Dependant

from mistnet.social.accounts import AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import THREADS, Media, PostId, Reference, Unreadable, UserId, X
from tests.apis import Api, api_routes, described_routes, open_api
from tests.harvests import change, days_ago, end_badly, id_at, post, tell, user

pytestmark = pytest.mark.common_sql

ANN, BOB = 11, 12


def tracked(user_id: int) -> AccountTracked:
    return AccountTracked(platform=X, user_id=UserId(user_id))


async def with_ann(api: Api, posts: int = 5) -> list[int]:
    ids = [int(id_at(days_ago(posts - place))) for place in range(posts)]
    await tell(api.app, user(ANN, "ann", name="Ann"), tracked(ANN), *(post(each, ANN) for each in ids))
    return ids


async def test_an_account_is_found_by_id_handle_and_part_of_its_name(url: str) -> None:
    async with open_api(url) as api:
        await with_ann(api)
        for who in ("11", "ann", "@Ann"):
            found = await api.ok(f"/api/accounts/{who}")
            assert (found["user_id"], found["handle"], found["stored_posts"], found["next_limit"]) == (
                "11",
                "ann",
                5,
                100,
            )
        assert [each["handle"] for each in (await api.ok("/api/accounts?search=NN"))["items"]] == ["ann"]
        assert (await api.ok("/api/accounts?search=zoe"))["items"] == []
        assert (await api.get("/api/accounts/nobody")).status == 404


async def test_lists_are_stable_while_rows_come_in(url: str) -> None:
    async with open_api(url) as api:
        ids = await with_ann(api, posts=7)
        seen: list[str] = []
        newer = int(id_at(days_ago(0)))
        async for page in api.pages("/api/posts?author=ann", limit=2):
            seen += [each["id"] for each in page]
            newer += 1
            await tell(api.app, post(newer, ANN))
        assert seen == [str(each) for each in sorted(ids, reverse=True)]


async def test_every_list_can_be_walked_to_its_end_in_pages_of_one(url: str) -> None:
    async with open_api(url) as api:
        await with_ann(api, posts=3)
        await tell(api.app, *(user(each, f"u{each}") for each in (20, 21, 22)), *(tracked(each) for each in (20, 21)))
        broken = [
            Unreadable(platform=X, endpoint="tweets", problem=f"p{n}", payload=f"{{{n}".encode()) for n in range(3)
        ]
        await tell(api.app, *broken)
        await api.app.enqueue([args.backfill(UserId(each)) for each in (20, 21, 22)])
        await api.post("/api/suggestions", json={"handles": ["x1", "x2", "x3"], "labels": {"why": "a test"}})
        for path, many in (
            ("/api/accounts", 3),
            ("/api/posts", 3),
            ("/api/jobs", 6),
            ("/api/suggestions", 3),
            ("/api/quarantine", 3),
            ("/api/alerts", 0),
            ("/api/events", 0),
            ("/api/runs", 0),
        ):
            found: list[Any] = [each async for page in api.pages(path, limit=1) for each in page]
            places = [each.get("id") or each["user_id"] for each in found]
            assert len(set(places)) == len(places) == many, path


async def test_an_invalid_cursor_is_refused_with_its_name(url: str) -> None:
    async with open_api(url) as api:
        for path in ("/api/accounts", "/api/posts", "/api/jobs", "/api/runs", "/api/events", "/api/quarantine"):
            for bad in ("!", "AAAA", "x" * 400, "%00"):
                answer = await api.get(f"{path}?cursor={bad}")
                assert answer.status == 400
                assert list(answer.problems) == ["cursor"]


async def test_posts_are_filtered_by_author_time_and_words(url: str) -> None:
    async with open_api(url) as api:
        ids = await with_ann(api, posts=4)
        await tell(api.app, user(BOB, "bob"), post(int(id_at(days_ago(2), 9)), BOB))
        day = f"{days_ago(2.5):%Y-%m-%dT%H:%M:%SZ}"
        newer = await api.ok(f"/api/posts?author=11&since={day}")
        assert [each["id"] for each in newer["items"]] == [str(ids[3]), str(ids[2])]
        older = await api.ok(f"/api/posts?until={day}&author=@ann")
        assert [each["id"] for each in older["items"]] == [str(ids[1]), str(ids[0])]
        found = await api.ok(f"/api/posts?q={ids[0]}")
        assert [each["id"] for each in found["items"]] == [str(ids[0])]
        for author, many in (("11", 4), ("@ann", 4), ("12", 1), ("nobody", 0), ("99", 0)):
            assert len((await api.ok(f"/api/posts?q=post&author={author}"))["items"]) == many
            assert len((await api.ok(f"/api/posts?author={author}"))["items"]) == many
        nothing = await api.get("/api/posts?q=-")
        assert (nothing.status, list(nothing.problems)) == (400, ["q"])
        for field in ("since", "until"):
            wrong = await api.get(f"/api/posts?{field}=yesterday")
            assert (wrong.status, list(wrong.problems)) == (400, [field])


async def test_posts_are_filtered_by_when_they_were_stored(url: str) -> None:
    async with open_api(url) as api:
        ids = await with_ann(api, posts=2)
        api.clock.turn(hours=2)
        older = int(id_at(days_ago(9)))
        await tell(api.app, post(older, ANN), post(ids[0], ANN))
        since = f"{api.clock.now() - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        for more in ("", "&author=ann", "&q=post"):
            late = (await api.ok(f"/api/posts?stored_since={since}{more}"))["items"]
            assert [each["id"] for each in late] == [str(older)], more
            early = (await api.ok(f"/api/posts?stored_until={since}{more}"))["items"]
            assert [each["id"] for each in early] == [str(ids[1]), str(ids[0])], more
        wrong = await api.get("/api/posts?stored_since=yesterday")
        assert (wrong.status, list(wrong.problems)) == (400, ["stored_since"])


async def test_a_post_has_its_clean_text_and_the_post_it_quotes(url: str) -> None:
    async with open_api(url) as api:
        await with_ann(api, posts=1)
        shown = Media(kind="photo", url="https://pbs.example/1.jpg", key="3_17")
        quoted = Reference(id=PostId(5), text="one\n two", author_handle="bob", media=[shown])
        await tell(
            api.app, msgspec.structs.replace(post(900, ANN), text="a\r\n b", quoted=quoted, media=[shown], url=None)
        )
        for told in (await api.ok("/api/posts/900"), (await api.ok("/api/posts"))["items"][-1]):
            assert (told["text"], told["text_clean"]) == ("a\r\n b", "a b")
            assert (told["referenced_text"], told["referenced_text_clean"]) == ("one\n two", "one two")
            assert told["referenced_handle"] == "bob"
            assert [each["key"] for each in (*told["media"], *told["referenced_media"])] == ["3_17", "3_17"]


async def test_a_post_has_its_payload_only_on_request(url: str) -> None:
    async with open_api(url) as api:
        first, *_ = await with_ann(api)
        assert (await api.ok(f"/api/posts/{first}"))["raw"] is None
        assert (await api.ok(f"/api/posts/{first}?raw=true"))["raw"] == {}
        assert (await api.get("/api/posts/9223372036854775808")).status == 404
        assert (await api.get("/api/posts/abc")).status == 400


async def with_both_platforms(api: Api) -> list[tuple[str, str]]:
    """An author of one handle on two platforms, whose ids grow differently. Answers (platform, id), newest first."""
    ours = msgspec.structs.replace(user(31, "ann"), platform=THREADS)
    told = [
        (X, int(id_at(days_ago(4)))),
        (THREADS, 9_000_000_000_000_000_001),
        (X, int(id_at(days_ago(2)))),
        (THREADS, 17),
    ]
    posts = [
        msgspec.structs.replace(
            post(each, 31 if platform == THREADS else ANN),
            platform=platform,
            created_at=days_ago(4 - place),
        )
        for place, (platform, each) in enumerate(told)
    ]
    await tell(api.app, user(ANN, "ann", name="Ann"), ours, *posts)
    return [(str(platform), str(each)) for platform, each in reversed(told)]


async def test_posts_of_every_platform_are_listed_by_the_time_they_were_written(url: str) -> None:
    async with open_api(url) as api:
        told = await with_both_platforms(api)
        for path in ("/api/posts", "/api/posts?author=ann", "/api/posts?q=post", "/api/posts?q=post&author=ann"):
            whole = [each async for page in api.pages(path, limit=1) for each in page]
            assert [(each["platform"], each["id"]) for each in whole] == told, path
        for path in ("/api/posts?platform=threads", "/api/posts?q=post&platform=threads", "/api/posts?author=31"):
            some = (await api.ok(path))["items"]
            assert [(each["platform"], each["id"]) for each in some] == told[::2], path
        assert (await api.ok("/api/posts?author=31&platform=x"))["items"] == []
        assert (await api.get("/api/posts?platform=myspace")).status == 400


async def test_posts_written_in_the_same_second_are_in_the_order_of_platform_and_id(url: str) -> None:
    async with open_api(url) as api:
        ours = msgspec.structs.replace(user(31, "ann"), platform=THREADS)
        same = [
            msgspec.structs.replace(post(each, 31 if each > 2 else ANN), platform=platform, created_at=days_ago(1))
            for platform, each in ((X, 1), (X, 2), (THREADS, 3), (THREADS, 4))
        ]
        await tell(api.app, user(ANN, "ann"), ours, *same)
        for path in ("/api/posts", "/api/posts?author=ann", "/api/posts?q=post"):
            whole = [each["id"] async for page in api.pages(path, limit=1) for each in page]
            assert whole == ["2", "1", "4", "3"], path


async def test_a_post_is_found_by_its_id_on_whatever_platform_it_is(url: str) -> None:
    async with open_api(url) as api:
        await with_both_platforms(api)
        found = await api.ok("/api/posts/17?raw=true")
        assert (found["platform"], found["author_id"], found["raw"]) == ("threads", "31", {})
        assert (await api.get("/api/posts/17?platform=x")).status == 404
        await tell(api.app, post(17, ANN))
        either = await api.get("/api/posts/17")
        assert (either.status, either.json["error"]["message"]) == (
            400,
            "Post 17 is stored on x and on threads. Add platform=x or platform=threads.",
        )
        assert (await api.ok("/api/posts/17?platform=x"))["author_id"] == str(ANN)


async def test_a_conversation_of_threads_can_be_read(url: str) -> None:
    async with open_api(url) as api:
        ours = msgspec.structs.replace(user(31, "ann"), platform=THREADS)
        said = [
            msgspec.structs.replace(
                post(each, 31, answers=answers, conversation=900), platform=THREADS, created_at=days_ago(ago)
            )
            for each, answers, ago in ((900, None, 3), (50, 900, 2), (700, 900, 1))
        ]
        await tell(api.app, ours, *said)
        for path in ("/api/conversations/900", "/api/conversations/900?platform=threads"):
            found = await api.ok(path)
            assert (found["platform"], found["posts"]) == ("threads", 3)
            assert [each["post"]["id"] for each in found["nodes"]] == ["900", "50", "700"]
        first = await api.ok("/api/conversations/900?limit=2")
        assert [each["post"]["id"] for each in first["nodes"]] == ["900", "50"]
        rest = await api.ok(f"/api/conversations/900?limit=2&cursor={first['next']}")
        assert ([each["post"]["id"] for each in rest["nodes"]], rest["next"]) == (["700"], None)
        assert (await api.get("/api/conversations/900?platform=x")).status == 404


async def test_a_user_is_shown_with_what_he_showed_before(url: str) -> None:
    async with open_api(url) as api:
        for name in ("Ann", "Anna", "Annabel"):
            await tell(api.app, user(ANN, "ann", name=name))
            api.clock.turn(hours=1)
        assert (await api.ok("/api/users/ann"))["name"] == "Annabel"
        names = [each["name"] async for page in api.pages("/api/users/11/versions", limit=1) for each in page]
        assert names == ["Anna", "Ann"]
        assert (await api.get("/api/users/99")).status == 404


async def test_a_conversation_is_a_tree_with_its_gaps(url: str) -> None:
    async with open_api(url) as api:
        root, reply, lost, below = (int(id_at(days_ago(days))) for days in (4, 3, 2, 1))
        await tell(
            api.app,
            user(ANN, "ann"),
            post(root, conversation=root),
            post(reply, conversation=root, answers=root),
            post(below, conversation=root, answers=lost),
        )
        found = await api.ok(f"/api/conversations/{root}")
        assert (found["complete"], found["posts"]) == (False, 3)
        assert [each["post_id"] for each in found["gaps"]] == [str(lost)]
        shown = [
            (each["depth"], each["post"] and each["post"]["id"], each["missing"] and each["missing"]["post_id"])
            for each in found["nodes"]
        ]
        assert shown == [(0, str(root), None), (1, str(reply), None), (0, None, str(lost)), (1, str(below), None)]
        await tell(api.app, post(lost, conversation=root, answers=reply))
        whole = await api.ok(f"/api/conversations/{root}")
        assert (whole["complete"], whole["gaps"]) == (True, [])
        other = await api.get(f"/api/conversations/{reply}")
        assert (other.status, str(root) in other.text) == (404, True)


async def test_coverage_tells_what_is_verified_and_what_is_missing(url: str) -> None:
    async with open_api(url) as api:
        await with_ann(api)
        found = await api.ok("/api/accounts/ann/coverage")
        assert found["stored"] == 5
        assert {each["standing"] for each in found["own_posts"]} <= {"missing", "verified", "not_looked_at"}
        begun = (await api.post("/api/accounts/ann/repair")).json
        assert begun == {"done": ["@ann: a backfill sweep is started"]}
        assert [each["kind"] for each in (await api.ok("/api/accounts/ann/coverage"))["live_sweeps"]] == ["backfill"]


async def test_spend_sources_and_schedule_answer_before_anything_happened(url: str) -> None:
    async with open_api(url) as api:
        assert (await api.ok("/api/spend"))["items"] == []
        assert [each["name"] for each in (await api.ok("/api/sources"))["items"]] == ["x"]
        schedule = await api.ok("/api/schedule")
        assert [each["name"] for each in schedule["groups"]] == ["default"]
        assert "backfill" in [each["kind"] for each in (await api.ok("/api/kinds"))["items"]]


async def test_a_job_is_shown_with_everything_that_went_wrong(url: str) -> None:
    async with open_api(url) as api:
        await end_badly(api.app, args.backfill(UserId(ANN)))
        (line,) = (await api.ok("/api/jobs?state=dead"))["items"]
        await change(
            api.app,
            "INSERT INTO job_errors (job_id, fence, at, worker, error) VALUES (:id, 1, "
            + ("now()" if api.app.database.dialect == "postgresql" else "'2026-03-01 12:00:00.000000'")
            + ", 'ann', 'it broke')",
            id=int(line["id"]),
        )
        whole = await api.ok(f"/api/jobs/{line['id']}")
        assert (whole["args"]["user_id"], [each["error"] for each in whole["errors"]]) == (ANN, ["it broke"])


async def test_health_reports_work_without_a_worker(url: str) -> None:
    async with open_api(url) as api:
        assert await api.ok("/healthz") == await api.ok("/readyz") == {"status": "ok"}
        assert (await api.ok("/health"))["status"] == "ok"
        await api.app.enqueue([args.backfill(UserId(ANN))])
        api.clock.turn(minutes=5)
        found = await api.ok("/health")
        assert (found["status"], found["workers"], found["oldest_due_seconds"]) == ("degraded", 0, 300)
        metrics = await api.get("/metrics")
        assert 'kind="backfill",state="pending"' in metrics.text


def test_no_route_takes_a_thread() -> None:
    """What is not async runs in a thread of its own, which costs more than most answers do."""

    def calls(of: Dependant) -> Iterator[Callable[..., Any]]:
        yield from [of.call] if of.call else []
        for each in of.dependencies:
            yield from calls(each)

    found = {call for route in api_routes(described_routes()) for call in calls(route.dependant)}
    called = [call if inspect.isfunction(call) else type(call).__call__ for call in found]
    assert len(called) > 40
    threaded = [call for call in called if not inspect.iscoroutinefunction(call)]
    assert [call.__qualname__ for call in threaded] == []


async def test_answers_are_not_held_back(sqlite_url: str) -> None:
    """A listener that does not say TCP keeps each answer for 40 ms, until the client has said that it got its head."""
    async with open_api(sqlite_url) as api:
        times = []
        for _ in range(20):
            begun = time.perf_counter()
            await api.get("/healthz")
            times.append(time.perf_counter() - begun)
        assert min(times) < 0.03
