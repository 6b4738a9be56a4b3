"""What is kept of an answer, and what a job's failure puts on record."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mistnet.governor.errors import BadRequest, BrokenAnswer, RateLimited, SourceDown
from mistnet.kit.transport import Exchange
from mistnet.queue.model import Done, Fail, Job, JobId, KindName, Lane, Outcome, Retry, Snooze
from mistnet.social.ingests import (
    BODY_LIMIT,
    IngestAdvanced,
    IngestBegun,
    IngestEnded,
    IngestStatus,
    exchange_of,
    recorded,
    with_event,
)
from mistnet.social.jobs.posts_sync import AUTHORS_PER_QUESTION, PostsSyncArgs, begun, posts_sync
from mistnet.social.model import Detail, PostId, Span, User, UserId, X
from mistnet.sources.x.client import query_of
from tests.support import START

KEY = "a-key-nobody-may-see"


def kept(body: bytes = b"{}", headers: Mapping[str, str] | None = None) -> Exchange:
    return exchange_of("tweets", status=500, headers=headers or {}, body=body, secrets=[KEY])


def test_headers_that_carry_secrets_are_left_out() -> None:
    headers = {"Content-Type": "text/plain", "Set-Cookie": "s=1", "X-API-Key": KEY, "Authorization": "x", "X-Auth": "y"}
    assert kept(headers=headers).headers == {"content-type": "text/plain"}


def test_a_key_that_an_answer_repeats_is_masked() -> None:
    told = kept(f'{{"message": "bad key {KEY}"}}'.encode(), {"Location": f"/?k={KEY}"})
    assert KEY not in str(told)
    assert "bad key ***" in told.body


def test_a_body_is_cut_and_can_be_stored() -> None:
    told = kept(b"\x00\xff" + b"x" * 100_000)
    assert len(told.body) == BODY_LIMIT
    assert "\x00" not in told.body


def job(**about: Any) -> Job[PostsSyncArgs]:
    args = PostsSyncArgs(user_ids=(UserId(1), UserId(2)), floor=PostId(7), **about)
    return Job(
        id=JobId(5),
        kind=KindName("posts_sync"),
        key="k",
        lane=Lane("x"),
        args=args,
        attempt=1,
        run_at=START,
        created_at=START,
    )


async def outcome_of(error: Exception) -> Outcome:
    async def handle(_job: Job[PostsSyncArgs]) -> Outcome:
        raise error

    return await recorded(handle, begun)(job())


async def test_a_fault_that_may_pass_is_noted_and_the_ingest_stays_open() -> None:
    error = SourceDown("x", "503 no", status=503)
    error.exchange = Exchange(endpoint="tweets", status=503)
    outcome = await outcome_of(error)
    assert isinstance(outcome, Retry)
    first, told = outcome.writes
    assert isinstance(first, IngestBegun)
    assert first.ids == (1, 2)
    assert told == IngestAdvanced(job_id=JobId(5), calls=1, problem=str(error), exchange=error.exchange)


async def test_a_fault_for_good_ends_the_ingest() -> None:
    outcome = await outcome_of(BadRequest("x", "tweets", 400, "no"))
    assert isinstance(outcome, Fail)
    assert [type(each) for each in outcome.writes] == [IngestBegun, IngestEnded]
    assert isinstance(outcome.writes[1], IngestEnded)
    assert outcome.writes[1].status is IngestStatus.ERROR


async def test_a_wait_is_no_fault() -> None:
    with pytest.raises(RateLimited):
        await outcome_of(RateLimited("x", START))


def test_the_event_of_a_call_lands_with_the_first_job_that_writes() -> None:
    told = [begun(job())]
    outcomes = with_event([Snooze(START, "later"), Retry("no"), Done()], told)
    assert outcomes == [Snooze(START, "later"), Retry("no", writes=told), Done([])]


async def test_what_a_recorded_job_writes_says_whose_ingest_it_came_with() -> None:
    async def handle(_job: Job[PostsSyncArgs]) -> Outcome:
        return Done([begun(job()), person(1)])

    outcome = await recorded(handle, begun)(job())
    assert isinstance(outcome, Done)
    assert outcome.writes == [begun(job()), msgspec.structs.replace(person(1), ingest_job_id=JobId(5))]


def test_what_a_batch_writes_says_which_job_has_the_ingest() -> None:
    first, second = with_event([Done(), Done([person(1)])], [begun(job())])
    assert first == Done([begun(job())])
    assert second == Done([msgspec.structs.replace(person(1), ingest_job_id=JobId(5))])


def person(user_id: int) -> User:
    return User(platform=X, id=UserId(user_id), detail=Detail.PROFILE, raw=b"{}")


def test_the_same_users_since_the_same_post_are_one_job() -> None:
    one = posts_sync([UserId(2), UserId(1), UserId(2)], PostId(7))
    assert one.key == posts_sync([UserId(1), UserId(2)], PostId(7)).key
    assert one.key != posts_sync([UserId(1), UserId(2)], PostId(8)).key
    assert one.key != posts_sync([UserId(1)], PostId(7)).key


def test_a_question_names_all_its_authors_and_stays_short_enough() -> None:
    assert query_of(["ann"], Span()) == "from:ann"
    assert query_of(["bob", "ann"], Span(floor=PostId(7), ceiling=PostId(9))) == (
        "(from:ann OR from:bob) since_id:7 max_id:9"
    )
    longest = [f"{n:015d}" for n in range(AUTHORS_PER_QUESTION)]
    largest = PostId(2**63 - 1)
    assert len(query_of(longest, Span(floor=largest, ceiling=largest))) <= 512


def test_broken_answers_carry_what_was_answered_only_if_there_was_an_answer() -> None:
    assert BrokenAnswer("x", "tweets", "no").exchange is None
