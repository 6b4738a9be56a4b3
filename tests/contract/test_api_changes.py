"""What an operator does through the API, on every database."""

from __future__ import annotations

import asyncio

import pytest

from mistnet.social.accounts import AccountTracked
from mistnet.social.jobs import args
from mistnet.social.model import PostId, Unreadable, UserId, X
from tests.apis import open_api
from tests.harvests import change, days_ago, end_badly, id_at, rows, tell, user

pytestmark = pytest.mark.common_sql

ANN = UserId(11)


async def test_a_scrape_is_accepted_shown_and_alone(url: str) -> None:
    async with open_api(url) as api:
        begun = await api.post("/api/admin/scrape", json={"usernames": "ann, @bob,ann", "limit": 7})
        assert (begun.status, begun.json["status"]) == (202, "pending")
        task_id = begun.json["task_id"]
        shown = await api.ok(f"/api/admin/scrape/{task_id}")
        assert set(shown) == {"task_id", "status", "result", "created_at", "updated_at"}
        assert (shown["task_id"], shown["result"]) == (task_id, None)
        second = await api.post("/api/admin/scrape", json={"usernames": "zoe"})
        assert (second.status, task_id in second.json["error"]["message"]) == (409, True)
        jobs = (await api.ok("/api/jobs?kind=scrape"))["items"]
        assert sorted(each["key"] for each in jobs) == [f"{task_id}:0", f"{task_id}:1"]
        assert [each["id"] for each in (await api.ok("/api/runs"))["items"]] == [task_id]


async def test_of_many_scrapes_at_once_one_wins(url: str) -> None:
    async with open_api(url) as api:
        asked = [api.post("/api/admin/scrape", json={"usernames": "ann"}) for _ in range(8)]
        statuses = sorted([each.status for each in await asyncio.gather(*asked)])
        assert statuses == [202] + [409] * 7


async def test_a_run_is_cancelled_and_another_may_begin(url: str) -> None:
    async with open_api(url) as api:
        task_id = (await api.post("/api/admin/scrape", json={"usernames": "ann"})).json["task_id"]
        done = await api.post(f"/api/runs/{task_id}/cancel")
        assert (done.status, done.json["id"], done.json["status"]) == (200, task_id, "failed")
        assert [each["reason"] for each in done.json["accounts"]] == ["its job was cancelled"]
        assert (await api.post(f"/api/runs/{task_id}/cancel")).status == 200
        assert (await api.post("/api/admin/scrape", json={"usernames": "bob"})).status == 202
        assert (await api.post("/api/runs/nothing/cancel")).status == 404


async def test_a_run_whose_jobs_are_dead_has_a_report(url: str) -> None:
    async with open_api(url) as api:
        task_id = (await api.post("/api/admin/scrape", json={"usernames": "ann,bob"})).json["task_id"]
        await change(api.app, "UPDATE jobs SET state = 'dead', attempts = max_attempts, last_error = 'it broke'")
        shown = await api.ok(f"/api/admin/scrape/{task_id}")
        assert shown["status"] == "failed"
        assert [(each["username"], each["reason"]) for each in shown["result"]["accounts"]] == [
            ("ann", "it broke"),
            ("bob", "it broke"),
        ]
        assert (await api.ok(f"/api/runs/{task_id}"))["asked_by"] == "local"


async def test_a_bad_scrape_is_refused_field_by_field(url: str) -> None:
    async with open_api(url) as api:
        for body, field in (
            ({}, "usernames"),
            ({"usernames": ""}, "usernames"),
            ({"usernames": "ann", "limit": 0}, "limit"),
            ({"usernames": "ann", "limit": 1001}, "limit"),
            ({"usernames": "ann", "limit": "7"}, "limit"),
            ({"usernames": "ann", "limit": True}, "limit"),
            ({"usernames": "ann", "more": 1}, "more"),
            ({"usernames": ["ann"]}, "usernames"),
        ):
            answer = await api.post("/api/admin/scrape", json=body)
            assert (answer.status, list(answer.problems)) == (400, [field]), body
        handles = await api.post("/api/admin/scrape", json={"usernames": "ann,b b,c-c"})
        told = [each["problem"] for each in handles.json["error"]["fields"]]
        assert handles.status == 400
        assert ["'b b'" in told[0], "'c-c'" in told[1]] == [True, True]
        assert (await api.get("/api/admin/scrape/no-such-task")).status == 404
        assert await rows(api.app, "SELECT id FROM runs") == []


async def test_an_account_is_tracked_caught_up_with_and_let_go(url: str) -> None:
    async with open_api(url) as api:
        told = (await api.post("/api/accounts", json={"handles": ["@ann", "https://x.com/bob"]})).json["accounts"]
        assert [(each["handle"], each["result"]) for each in told] == [("ann", "added"), ("bob", "added")]
        bad = await api.post("/api/accounts", json={"handles": ["ann", "no way", "x" * 16]})
        assert (bad.status, list(bad.problems)) == (400, ["handles.1", "handles.2"])
        await tell(api.app, user(11, "ann"), AccountTracked(platform=X, user_id=ANN))
        again = await api.post("/api/accounts/ann/catch-up")
        assert (again.status, "its past" in again.json["note"]) == (202, True)
        gone = await api.ask("DELETE", "/api/accounts/ann")
        assert (gone.json["was"], len(gone.json["cancelled"])) == ("active", 2)
        assert (await api.ask("DELETE", "/api/accounts/nobody")).status == 404
        assert (await api.post("/api/accounts/ann/catch-up")).status == 404


async def test_suggestions_keep_their_wallet_and_labels(url: str) -> None:
    async with open_api(url) as api:
        wanted = {"handles": ["zoe"], "wallet": "0xabc", "labels": {"why": "asked for"}}
        assert (await api.post("/api/suggestions", json=wanted)).json["suggestions"][0]["result"] == "added"
        assert (await api.post("/api/suggestions", json=wanted)).json["suggestions"][0]["result"] == "already suggested"
        (kept,) = (await api.ok("/api/suggestions?open=true"))["items"]
        assert (kept["handle"], kept["wallet"], kept["labels"]) == ("zoe", "0xabc", {"why": "asked for"})
        nul = await api.post("/api/suggestions", json={"handles": ["zoe"], "wallet": "a\x00b"})
        assert (nul.status, list(nul.problems)) == (400, ["wallet"])


async def test_jobs_are_retried_cancelled_and_requeued(url: str) -> None:
    async with open_api(url) as api:
        await end_badly(api.app, args.backfill(ANN), args.relook(ANN))
        ids = {each["kind"]: each["id"] for each in (await api.ok("/api/jobs?state=dead"))["items"]}
        done = await api.post(f"/api/jobs/{ids['backfill']}/retry")
        assert (done.status, done.json) == (200, {"id": ids["backfill"], "state": "pending"})
        assert (await api.post(f"/api/jobs/{ids['backfill']}/retry")).status == 409
        assert (await api.post("/api/jobs/requeue", json={"kind": "relook"})).json["requeued"] == [ids["relook"]]
        assert (await api.post(f"/api/jobs/{ids['relook']}/cancel")).json["state"] == "cancelled"
        assert (await api.post(f"/api/jobs/{ids['relook']}/cancel")).status == 409
        assert (await api.post("/api/jobs/999999/retry")).status == 404


async def test_gaps_that_are_alike_are_accepted_at_once_and_all_others_stay(url: str) -> None:
    async with open_api(url) as api:
        await end_badly(api.app, args.relook(ANN), args.hydrate_post(PostId(5)), args.hydrate_post(PostId(6)))
        await api.app.enqueue([args.hydrate_post(PostId(7))])
        await change(api.app, "UPDATE jobs SET last_error = 'Robots.txt says 100% no' WHERE key = '6' OR key = '7'")
        assert (await api.post("/api/jobs/cancel", json={})).status == 400
        assert (await api.post("/api/jobs/cancel", json={"error": ""})).status == 400
        assert (await api.post("/api/jobs/cancel", json={"error": "1__% no"})).json["cancelled"] == []
        gone = await api.post("/api/jobs/cancel", json={"kind": "hydrate_post", "error": "robots.TXT says 100% no"})
        assert len(gone.json["cancelled"]) == 1
        left = (await api.ok("/api/jobs"))["items"]
        assert {(each["kind"], each["key"]) for each in left} == {
            ("relook", str(ANN)),
            ("hydrate_post", "5"),
            ("hydrate_post", "7"),
        }
        assert len((await api.post("/api/jobs/cancel", json={"kind": "hydrate_post"})).json["cancelled"]) == 1
        assert [each["state"] for each in (await api.ok("/api/jobs?state=pending"))["items"]] == ["pending"]


async def test_a_kind_is_paused_and_goes_on(url: str) -> None:
    async with open_api(url) as api:
        paused = await api.post("/api/kinds/walk/pause", json={"reason": "a look first"})
        assert paused.json == {"kind": "walk", "paused": True, "changed": True}
        shown = {each["kind"]: each["paused"] for each in (await api.ok("/api/kinds"))["items"]}
        assert shown["walk"] == "a look first"
        assert (await api.post("/api/kinds/walk/resume")).json["changed"] is True
        assert (await api.post("/api/kinds/nothing/pause")).status == 404


async def test_a_source_is_paused_resumed_and_limited(url: str) -> None:
    async with open_api(url) as api:
        assert (await api.post("/api/sources/x/pause", json={"reason": "too dear"})).json["changed"] is True
        (shown,) = (await api.ok("/api/sources"))["items"]
        assert (shown["state"], "too dear" in shown["why"]) == ("paused", True)
        assert (await api.ok("/health"))["paused"] is True
        assert (await api.post("/api/sources/x/resume")).json["changed"] is True
        limited = await api.ask("PATCH", "/api/sources/x", json={"rate": 60, "day_credits": 0, "month_credits": 900})
        assert (limited.json["day_cap"], limited.json["month_cap"]) == (0, 900)
        lifted = await api.ask("PATCH", "/api/sources/x", json={"day_credits": None})
        assert (lifted.json["day_cap"], lifted.json["month_cap"]) == (None, 900)
        assert (await api.ask("PATCH", "/api/sources/x", json={"rate": 0})).problems.keys() == {"rate"}
        assert (await api.post("/api/sources/y/pause")).status == 404


async def test_quarantined_payloads_are_shown_and_read_again(url: str) -> None:
    async with open_api(url) as api:
        broken = Unreadable(platform=X, endpoint="tweets", problem="no id", payload=b'{"text": "<b>\xff"}')
        await tell(api.app, broken)
        (kept,) = (await api.ok("/api/quarantine"))["items"]
        assert "<b>" in (await api.ok(f"/api/quarantine/{kept['id']}"))["payload"]
        left = (await api.post("/api/quarantine/reparse")).json["left"]
        assert sum(left.values()) == 1


async def test_a_push_from_upstream_is_stored_at_once_and_only_once(url: str) -> None:
    async with open_api(url, x_api_key=["push-key-one", "push-key-two"]) as api:
        await tell(api.app, user(11, "ann"), AccountTracked(platform=X, user_id=ANN))
        reply, parent = int(id_at(days_ago(1))), int(id_at(days_ago(2)))
        tweet = {
            "id": str(reply),
            "text": "pushed",
            "createdAt": "Sat Feb 28 12:00:00 +0000 2026",
            "conversationId": str(parent),
            "inReplyToId": str(parent),
            "inReplyToUserId": "77",
            "author": {"id": "11", "userName": "ann", "name": "Ann"},
        }
        nobody = {**tweet, "id": "5", "author": {"name": "no id"}}
        push = {"event_type": "tweet", "rule_id": "1", "rule_tag": "t", "tweets": [tweet, nobody], "timestamp": 1}
        key = {"X-API-Key": "push-key-two"}
        first = await api.post("/webhooks/twitterapi-io", json=push, headers=key)
        assert (first.status, first.json) == (200, {"ignored": False, "posts": 1, "new": 1, "unreadable": 1})
        assert (await api.ok(f"/api/posts/{reply}"))["text"] == "pushed"
        assert len((await api.ok("/api/quarantine"))["items"]) == 1
        kinds = [each["kind"] for each in (await api.ok("/api/jobs"))["items"]]
        assert sorted(kinds) == ["hydrate_user", "walk"]
        (event,) = (await api.ok("/api/events"))["items"]
        assert (event["kind"], event["payload"]["newest_post_id"]) == ("posts.collected", str(reply))
        again = await api.post("/webhooks/twitterapi-io", json=push, headers=key)
        assert again.json == {"ignored": False, "posts": 1, "new": 0, "unreadable": 1}
        assert len((await api.ok("/api/jobs"))["items"]) == 2
        assert len((await api.ok("/api/events"))["items"]) == 1


async def test_a_push_is_believed_only_with_the_key(url: str) -> None:
    async with open_api(url, x_api_key=["push-key-one"]) as api:
        push = {"event_type": "tweet", "tweets": []}
        for headers in ({}, {"X-API-Key": "wrong"}, {"X-API-Key": ""}, {"Authorization": "Bearer push-key-one"}):
            assert (await api.post("/webhooks/twitterapi-io", json=push, headers=headers)).status == 401
        key = {"X-API-Key": "push-key-one"}
        assert (await api.post("/webhooks/twitterapi-io", json={"event_type": "test"}, headers=key)).json["ignored"]
        for broken in (b"", b"{", b"[]", b'{"event_type": 1}', b'{"event_type":"tweet","tweets":{}}', b"[" * 100_000):
            answer = await api.post("/webhooks/twitterapi-io", data=broken, headers=key)
            assert (answer.status, list(answer.problems)) == (400, ["body"])


async def test_without_a_configured_key_no_push_is_believed(url: str) -> None:
    async with open_api(url) as api:
        for headers in ({}, {"X-API-Key": ""}):
            assert (await api.post("/webhooks/twitterapi-io", json={"event_type": "x"}, headers=headers)).status == 401


async def test_a_post_written_by_a_stranger_is_stored_and_leads_nowhere(url: str) -> None:
    async with open_api(url, x_api_key=["push-key-one"]) as api:
        tweet = {
            "id": str(id_at(days_ago(1))),
            "text": "hi",
            "createdAt": "Sat Feb 28 12:00:00 +0000 2026",
            "inReplyToId": "7",
            "author": {"id": "99", "userName": "zed"},
        }
        push = {"event_type": "tweet", "tweets": [tweet]}
        taken = await api.post("/webhooks/twitterapi-io", json=push, headers={"X-API-Key": "push-key-one"})
        assert taken.json["new"] == 1
        assert (await api.ok("/api/jobs"))["items"] == []
        assert (await api.ok("/api/users/zed"))["id"] == "99"


async def test_runs_are_listed_in_pages_that_new_runs_do_not_move(url: str) -> None:
    async with open_api(url) as api:

        async def over() -> str:
            task_id = (await api.post("/api/admin/scrape", json={"usernames": "ann"})).json["task_id"]
            await change(api.app, "UPDATE jobs SET state = 'dead', attempts = max_attempts, last_error = 'it broke'")
            api.clock.turn(seconds=1)
            assert (await api.ok(f"/api/admin/scrape/{task_id}"))["status"] == "failed"
            return str(task_id)

        begun = [await over() for _ in range(3)]
        seen: list[str] = []
        async for page in api.pages("/api/runs", limit=1):
            seen += [each["id"] for each in page]
            await over()
        assert seen == begun[::-1]
