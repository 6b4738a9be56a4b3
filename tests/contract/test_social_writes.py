"""Users, posts and accounts as they are written: nothing is lost, nothing gets poorer, boundaries only move one way."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from mistnet.kit.database import Database
from mistnet.kit.errors import WriteRefused
from mistnet.queue.model import Write
from mistnet.queue.store.writes import PreparedWrites, Writers
from mistnet.social.accounts import AccountState, AccountStateChange, AccountTracked, Missing, SuggestionClosed, Swept
from mistnet.social.model import (
    Detail,
    Media,
    Metrics,
    Post,
    PostId,
    Reference,
    Unreadable,
    User,
    UserId,
    X,
)
from mistnet.social.store.accounts import StoreLook
from mistnet.social.store.post_listing import PostListing
from mistnet.sources.collecting import WRITERS
from mistnet.sources.x.decode import gather_posts
from tests.databases import open_database
from tests.examples import count_examples
from tests.loops import LOOP
from tests.support import START, TurnedClock
from tests.unit.test_x_decode import POST, anything, raw

pytestmark = pytest.mark.common_sql

ANN = UserId(11)


def user(user_id: int = ANN, *, detail: Detail = Detail.PROFILE, **about: Any) -> User:
    given: dict[str, Any] = {"handle": "ann", "name": "Ann", "bio": "hello", "followers_count": 5, **about}
    shown = json.dumps({"id": str(user_id), "detail": detail, **{k: str(v) for k, v in about.items()}}).encode()
    return User(platform=X, id=UserId(user_id), detail=detail, raw=shown, **given)


def post(post_id: int, *, author: int = ANN, **about: Any) -> Post:
    given: dict[str, Any] = {"text": "Hello  there", "created_at": START, "raw": b'{"id":"%d"}' % post_id, **about}
    return Post(platform=X, id=PostId(post_id), author_id=UserId(author), **given)


class Shelf:
    """A database with the production writers."""

    def __init__(self, database: Database, clock: TurnedClock) -> None:
        self.database, self.clock = database, clock
        self.writers = Writers(WRITERS)

    async def write(self, *writes: Write) -> None:
        async with self.database.transaction() as connection:
            await self.writers.write(connection, PreparedWrites(writes), self.clock.now())
        self.clock.turn(minutes=1)

    async def rows(self, sql: str) -> list[Any]:
        async with self.database.read() as connection:
            return list((await connection.execute(text(sql))).all())

    async def one(self, sql: str) -> Any:
        (row,) = await self.rows(sql)
        return row


@asynccontextmanager
async def shelf(url: str) -> AsyncIterator[Shelf]:
    clock = TurnedClock()
    database = open_database(url, clock=clock)
    try:
        yield Shelf(database, clock)
    finally:
        await database.close()


async def test_what_a_payload_does_not_say_stays_known(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(location="Oslo", website="https://ann.example", posts_count=10))
        await s.write(user(detail=Detail.AUTHOR, bio=None, followers_count=6))
        row = await s.one("SELECT location, website, bio, followers_count, posts_count, detail FROM users")
        assert tuple(row) == ("Oslo", "https://ann.example", "hello", 6, 10, "profile")


async def test_what_comes_without_an_ingest_leaves_the_name_of_the_last_one(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(), post(5))
        assert await s.rows("SELECT ingest_id FROM users UNION ALL SELECT ingest_id FROM posts") == [(None,), (None,)]
        await s.write(user(ingest_id=7, bio="new"), post(5, ingest_id=7))
        await s.write(user(bio="newer"), post(5, text="newer"))
        row = await s.one("SELECT u.bio, u.ingest_id, p.ingest_id FROM users u JOIN posts p ON p.author_id = u.id")
        assert tuple(row) == ("newer", 7, 7)


@pytest.mark.parametrize("relation", ["quoted", "reposted"])
async def test_a_referenced_post_is_stored_with_its_text_author_and_media(url: str, relation: str) -> None:
    media = Media(kind="photo", url="https://p.example/1.jpg")
    original = Reference(id=PostId(3), text="Original", author_handle="bea", media=[media])
    async with shelf(url) as s:
        about: dict[str, Any] = {relation: original}
        await s.write(user(), post(5, **about))
        row = await s.one(
            f"SELECT {relation}_id AS id, referenced_text, referenced_handle, CAST(referenced_media AS text) FROM posts"
        )
        assert tuple(row[:3]) == (3, "Original", "bea")
        assert json.loads(row[3])[0]["url"] == "https://p.example/1.jpg"


async def test_a_poorer_payload_never_replaces_the_raw_of_a_richer_one(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(detail=Detail.AUTHOR))
        await s.write(user(detail=Detail.PROFILE))
        await s.write(user(detail=Detail.LISTED))
        row = await s.one("SELECT CAST(raw AS text) AS raw, detail FROM users")
        assert json.loads(row.raw)["detail"] == "profile"
        assert row.detail == "profile"


async def test_within_one_page_the_richer_telling_counts(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(detail=Detail.PROFILE, bio="long"), user(detail=Detail.AUTHOR, bio="short"))
        assert (await s.one("SELECT bio FROM users")).bio == "long"


async def test_an_earlier_handle_name_bio_and_picture_are_kept(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(avatar_url="https://p.example/a_normal.jpg"))
        await s.write(user(avatar_url="https://p.example/a_400x400.jpg"))
        assert await s.rows("SELECT handle FROM user_versions") == []
        await s.write(user(handle="Ann_Now", avatar_url="https://p.example/b_normal.jpg"))
        version = await s.one("SELECT handle, handle_key, name, bio, avatar_url, until FROM user_versions")
        assert (version.handle, version.handle_key, version.name) == ("ann", "ann", "Ann")
        assert version.avatar_url == "https://p.example/a_400x400.jpg"
        assert (await s.one("SELECT handle, handle_key FROM users")).handle_key == "ann_now"


async def test_a_user_who_comes_back_is_not_unavailable_any_more(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(unavailable_reason="Suspended"))
        assert (await s.one("SELECT unavailable_reason FROM users")).unavailable_reason == "Suspended"
        await s.write(user())
        assert (await s.one("SELECT unavailable_reason FROM users")).unavailable_reason is None


async def test_two_writers_of_the_same_new_users_and_posts_do_not_hurt_each_other(url: str) -> None:
    async with shelf(url) as s:
        people = [user(number, handle=f"u{number}") for number in range(1, 60)]
        posts = [post(number, author=number) for number in range(1, 60)]
        backward = s.write(*reversed(people), *reversed(posts))
        await asyncio.gather(*(s.write(*people, *posts) for _ in range(4)), backward)
        assert (await s.one("SELECT count(*) AS n FROM users")).n == 59
        assert (await s.one("SELECT count(*) AS n FROM posts")).n == 59


async def test_every_earlier_handle_is_kept_when_several_writers_rename_a_user_at_once(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(handle="first"))

        async def rename(number: int) -> None:
            async with s.database.transaction() as connection:
                given = PreparedWrites([user(handle=f"name{number}"), post(number)])
                await s.writers.write(connection, given, START + timedelta(hours=1, seconds=number))

        await asyncio.gather(*map(rename, range(8)))
        now = (await s.one("SELECT handle FROM users")).handle
        earlier = [row.handle for row in await s.rows("SELECT handle FROM user_versions")]
        assert sorted([*earlier, now]) == ["first", *(f"name{number}" for number in range(8))]


async def test_a_user_who_is_only_shown_can_be_updated_by_another_transaction(postgresql_url: str) -> None:
    """Popular users are on everybody's pages: a page that changes nothing about them must not lock them."""
    async with shelf(postgresql_url) as s:
        await s.write(user())
        async with s.database.transaction() as connection, asyncio.timeout(30):
            await s.writers.write(connection, PreparedWrites([user(detail=Detail.AUTHOR), post(1)]), s.clock.now())
            await s.write(user(bio="new"), post(2))
        assert (await s.one("SELECT bio FROM users")).bio == "new"


async def test_rows_that_others_want_are_written_last(postgresql_url: str) -> None:
    async with shelf(postgresql_url) as s:
        await s.write(user())
        async with s.database.transaction() as connection:
            said: list[str] = []
            event.listen(connection.sync_connection, "before_cursor_execute", lambda *about: said.append(about[2]))
            await s.writers.write(connection, PreparedWrites([user(bio="new"), post(1)]), s.clock.now())
        locked = next(place for place, each in enumerate(said) if "FOR NO KEY UPDATE" in each)
        assert locked > next(place for place, each in enumerate(said) if "INTO posts" in each)


async def test_a_post_without_its_author_is_refused(url: str) -> None:
    async with shelf(url) as s:
        with pytest.raises(WriteRefused):
            await s.write(post(1, author=99))
        assert await s.rows("SELECT id FROM posts") == []


async def test_a_user_row_cannot_be_a_placeholder(url: str) -> None:
    async with shelf(url) as s:
        stub = "INSERT INTO users (platform, id, detail, raw, first_seen_at) VALUES ('x', 5, 'profile', '{}', :at)"
        with pytest.raises((WriteRefused, IntegrityError), match=r"(?i)last_updated_at|null"):
            async with s.database.transaction() as connection:
                await connection.exec_driver_sql(stub.replace(":at", "'2026-03-01 00:00:00.000000'"))


async def test_refreshing_a_post_moves_its_counts_and_loses_nothing(url: str) -> None:
    async with shelf(url) as s:
        quoted = Reference(id=PostId(7), text="original", author_handle="bob")
        full = post(
            1,
            lang="en",
            in_reply_to_id=PostId(3),
            in_reply_to_user_id=UserId(4),
            quoted=quoted,
            metrics=Metrics(likes=1),
        )
        await s.write(user(), full)
        await s.write(user(), post(1, metrics=Metrics(likes=9, views=100)))
        row = await s.one(
            "SELECT lang, in_reply_to_id, in_reply_to_user_id, quoted_id, referenced_text, likes, views FROM posts"
        )
        assert tuple(row) == ("en", 3, 4, 7, "original", 9, 100)
        seen = await s.one("SELECT first_seen_at, last_updated_at FROM posts")
        assert seen.first_seen_at < seen.last_updated_at


async def test_the_time_a_post_was_written_never_changes_after_the_first_write(url: str) -> None:
    async with shelf(url) as kept:
        await kept.write(user(), post(1))
        for later in (timedelta(days=1), timedelta(days=-1)):
            await kept.write(user(), post(1, created_at=START + later, text="again"))
        assert (await kept.one("SELECT created_at, text FROM posts")).text == "again"
        (shown,) = await PostListing(kept.database).some([(X, PostId(1))])
        assert shown.created_at == START


async def test_referenced_text_is_cleaned_as_the_text_is(url: str) -> None:
    odd = "  one\r\n two\u2028three \t"
    async with shelf(url) as kept:
        await kept.write(user(), post(1, text=odd, quoted=Reference(id=PostId(9), text=odd)), post(2, text=odd))
        told = await kept.rows("SELECT text_clean, referenced_text, referenced_text_clean FROM posts ORDER BY id")
        assert [tuple(each) for each in told] == [
            ("one two three", odd, "one two three"),
            ("one two three", None, None),
        ]


async def test_a_post_shown_inside_another_never_replaces_the_one_shown_by_itself(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(), post(1, nested=True, raw=b'{"id":"1","inner":true}'))
        await s.write(user(), post(1, raw=b'{"id":"1","inner":false}'))
        await s.write(user(), post(1, nested=True, raw=b'{"id":"1","inner":true}'))
        row = await s.one("SELECT CAST(raw AS text) AS raw, nested FROM posts")
        assert json.loads(row.raw) == {"id": "1", "inner": False}
        assert not row.nested


@pytest.mark.parametrize(
    "hostile", ["a\x00b", "\ud800 alone", "'; DROP TABLE posts; --", "😀" * 20_000, "x " * 150_000]
)
async def test_hostile_and_long_text_is_kept(url: str, hostile: str) -> None:
    async with shelf(url) as s:
        await s.write(user(name=hostile, bio=hostile), post(1, text=hostile))
        row = await s.one("SELECT text FROM posts")
        assert len(row.text) == len(hostile)
        assert row.text.replace("\N{SYMBOL FOR NULL}", "\x00").replace("?", "\ud800") == hostile.replace("?", "\ud800")


async def test_boundaries_move_one_way_only(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(), AccountTracked(platform=X, user_id=ANN))
        for oldest, newest in ((50, 90), (60, 80), (40, None), (None, 95), (45, 70)):
            low = PostId(oldest) if oldest else None
            high = PostId(newest) if newest else None
            await s.write(Swept(platform=X, user_id=ANN, oldest=low, newest=high, found=1))
        row = await s.one("SELECT oldest_post_id, newest_post_id, fetches, posts_found FROM accounts")
        assert tuple(row) == (40, 95, 0, 5), "what a step brought is counted; whole fetches are counted elsewhere"


async def test_tracking_twice_keeps_the_progress(url: str) -> None:
    async with shelf(url) as s:
        tracked = AccountTracked(platform=X, user_id=ANN)
        await s.write(user(), tracked)
        await s.write(Swept(platform=X, user_id=ANN, oldest=PostId(5), newest=PostId(9), backfilled=True))
        await s.write(tracked)
        account = await StoreLook(s.database).account(X, ANN)
        assert account is not None
        assert (account.oldest_post_id, account.backfilled_at is not None) == (5, True)


async def test_a_late_sweep_does_not_bring_back_an_untracked_account(url: str) -> None:
    async with shelf(url) as s:
        await s.write(user(), AccountTracked(platform=X, user_id=ANN))
        await s.write(AccountStateChange(platform=X, user_id=ANN, state=AccountState.UNTRACKED))
        await s.write(AccountStateChange(platform=X, user_id=ANN, state=AccountState.SUSPENDED))
        assert (await s.one("SELECT state FROM accounts")).state == "untracked"


async def test_a_suggestion_is_closed_once(url: str) -> None:
    async with shelf(url) as s:
        async with s.database.transaction() as connection:
            await connection.exec_driver_sql(
                "INSERT INTO suggestions (platform, handle, handle_key, labels, suggested_at) "
                "VALUES ('x', 'Ann', 'ann', '{}', '2026-03-01 00:00:00.000000')"
            )
        closed = SuggestionClosed(platform=X, handle="ANN", accepted=True, user_id=ANN)
        await s.write(closed)
        first = await s.one("SELECT deleted_at, outcome, user_id FROM suggestions")
        await s.write(SuggestionClosed(platform=X, handle="ann", accepted=False, reason="again"))
        assert await s.one("SELECT deleted_at, outcome, user_id FROM suggestions") == first
        assert (first.outcome, first.user_id) == ("accepted", 11)


async def test_the_same_unreadable_payload_is_kept_once_and_counted(url: str) -> None:
    async with shelf(url) as s:
        bad = Unreadable(platform=X, endpoint="tweets", problem="no id", payload=b'{"text": "\xff\x00"}')
        await s.write(bad, bad)
        await s.write(bad)
        row = await s.one("SELECT payload, times_seen, problem FROM quarantine")
        assert (bytes(row.payload), row.times_seen, row.problem) == (bad.payload, 2, "no id")


async def test_what_is_missing_is_remembered_and_known(url: str) -> None:
    async with shelf(url) as s:
        gone = Missing(platform=X, what="user", id=77, reason="never returned")
        await s.write(gone)
        await s.write(gone, user())
        assert (await s.one("SELECT times_asked FROM missing")).times_asked == 2
        assert await StoreLook(s.database).known_users(X, {UserId(77), ANN, UserId(5)}) == {77, 11}


async def test_the_way_up_is_climbed_through_what_is_stored(url: str) -> None:
    async with shelf(url) as s:
        chain = [
            post(5, in_reply_to_id=PostId(4), in_reply_to_user_id=UserId(40)),
            post(4, in_reply_to_id=PostId(3), in_reply_to_user_id=UserId(30)),
            post(9),
            post(8, in_reply_to_id=PostId(2)),
            post(7, in_reply_to_id=PostId(7)),
        ]
        await s.write(user(), *chain, Missing(platform=X, what="post", id=2, reason="gone"))
        found = await StoreLook(s.database).frontiers(X, {PostId(each) for each in (5, 6, 9, 8, 7)})
        asked = {ANN, UserId(987)}
        both = await StoreLook(s.database).leads(X, {PostId(each) for each in (5, 6, 9, 8, 7)}, asked)
        assert both == (found, await StoreLook(s.database).known_users(X, asked))
        assert ANN in both[1]
        assert {start: (end.post_id, end.user_id) for start, end in found.items()} == {5: (3, 30), 6: (6, None)}


@settings(max_examples=count_examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    strange=st.dictionaries(
        st.sampled_from([*POST, "entities", "extendedEntities", "inReplyToUserId", "viewCount"]), anything, max_size=4
    ),
    author=st.dictionaries(st.sampled_from([*POST["author"], "followers", "description"]), anything, max_size=3),
)
def test_no_payload_stops_its_neighbours_from_being_stored(
    url: str, strange: dict[str, object], author: dict[str, object]
) -> None:
    """One database for all examples: what one leaves behind, the next one has to live with."""

    async def store() -> None:
        async with shelf(url) as s:
            hostile = raw({**POST, "author": {**POST["author"], **author}, **strange})
            gathered, _ = gather_posts([hostile, raw({**POST, "id": "5"})], "fuzz")
            await s.write(*gathered.writes)
            assert await s.rows("SELECT id FROM posts WHERE id = 5")

    LOOP.run(store())
