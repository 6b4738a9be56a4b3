"""Posts are found by their words, in the same language and the same order on every database."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from sqlalchemy import text
from typer.testing import CliRunner

from mistnet.cli.search import on_terminal, search
from mistnet.kit.database import Database
from mistnet.social.errors import BadSearch
from mistnet.social.model import THREADS, Detail, Metrics, Platform, Post, PostId, User, UserId, X
from mistnet.social.search_query import parse
from mistnet.social.store.post_listing import (
    _FEW,
    ListedPost,
    PostCursor,
    PostSearch,
    PostSpan,
    find_authors,
    newest_of,
    postgresql_search,
    sqlite_search,
)
from mistnet.social.store.posts import write_posts, write_users
from tests.databases import analyze, noted, open_database
from tests.examples import count_examples
from tests.loops import LOOP
from tests.support import START

pytestmark = pytest.mark.common_sql

ANN, BEA = UserId(1), UserId(2)
VOCABULARY = ("ash", "ashes", "bay", "sea", "seal")
ODD = st.text(st.sampled_from("ab 'é\"“”*-ORNTEAD()&|!<>:\\^{}+~,.@#_%$;\x00\ud800東京ั½🚀\n\t"), max_size=60)

cli = typer.Typer()
cli.command()(search)


def user(user_id: int, handle: str, platform: Platform = X) -> User:
    return User(platform=platform, id=UserId(user_id), detail=Detail.PROFILE, handle=handle, name=None, raw=b"{}")


def post(post_id: int, words: str, **about: Any) -> Post:
    own: dict[str, Any] = {"platform": X, "author_id": ANN, "created_at": START, "raw": b"{}"}
    return Post(id=PostId(post_id), text=words, **{**own, **about})


@asynccontextmanager
async def stored(url: str, *given: Post) -> AsyncIterator[Database]:
    database = open_database(url)
    try:
        people = [user(ANN, "Ann"), user(BEA, "bea"), user(ANN, "ann_threads", THREADS)]
        async with database.transaction() as connection:
            await write_users(connection, people, START)
            if given:
                await write_posts(connection, given, START)
        yield database
    finally:
        await database.close()


def fill(url: str, *given_posts: Post) -> None:
    async def write() -> None:
        async with stored(url, *given_posts):
            pass

    LOOP.run(write())


async def found(database: Database, query: str, **about: Any) -> list[int]:
    return [each.id for each in await hits(database, query, **about)]


async def hits(
    database: Database,
    query: str,
    *,
    author: str | UserId | None = None,
    before: PostCursor | None = None,
    limit: int = 100,
    **about: Any,
) -> Sequence[ListedPost]:
    authors = None if author is None else await find_authors(database, author)
    span = PostSpan(authors=authors, **about)
    return (await PostSearch(database).find(query, span, before=before, limit=limit)).items


TEXTS = {
    1: "Mist nets at dawn",
    2: "Ringing birds with a mist net, every dawn",
    3: "A net for fish; no fog today",
    4: "Fog. Mist! A well-known and/or unknown net?",
    5: "pi is 3.14, see https://example.com/birds",
    6: "東京タワーに行きました tower",
    7: "京の東にある",
    8: "ตลาดน้ำ 한국어",
    9: "don't @some_one about #MistNet",
}


QUERIES: list[tuple[str, list[int]]] = [
    ("mist", [4, 2, 1]),
    ("MIST dawn", [2, 1]),
    ('"mist net"', [2]),
    ('"net mist"', []),
    ('"mist net"*', [2, 1]),
    ("net", [4, 3, 2]),
    ("ne*", [4, 3, 2, 1]),
    ("net -fog", [2]),
    ('net -"no fog"', [4, 2]),
    ("net -mist -fish", []),
    ("fog OR dawn", [4, 3, 2, 1]),
    ("fog OR dawn mist", [4, 2, 1]),
    ("fog OR -dawn mist", [4]),
    ('fish OR "nets at"', [3, 1]),
    ("well-known", [4]),
    ('"well known"', [4]),
    ("known", [4]),
    ("well-kno*", [4]),
    ("and/or", [4]),
    ("3.14", [5]),
    ("example.com", [5]),
    ("exampl*", [5]),
    ("https://example.com/birds", [5]),
    ("東京", [6]),
    ("東", [7, 6]),
    ("京東", []),
    ("東京 tower", [6]),
    ("東京タワ*", [6]),
    ("tower -東京", []),
    ("ตลาด", [8]),
    ("국어", [8]),
    ("don't", [9]),
    ("@some_one", [9]),
    ("mistnet", [9]),
    ("absent", []),
]


async def test_a_query_finds_what_it_says(url: str) -> None:
    async with stored(url, *(post(each, words) for each, words in TEXTS.items())) as database:
        for query, ids in QUERIES:
            assert await found(database, query) == ids, query


async def test_accents_count_on_postgresql_only(url: str) -> None:
    async with stored(url, post(1, "a café"), post(2, "a cafe"), post(3, "A CAFÉ")) as database:
        either = [3, 2, 1]
        assert await found(database, "café") == (either if database.dialect == "sqlite" else [3, 1])
        assert await found(database, "cafe") == (either if database.dialect == "sqlite" else [2])


async def test_a_found_post_comes_with_its_author_and_its_counts(url: str) -> None:
    counts = Metrics(likes=3, replies=2, reposts=1, views=2**40)
    given_post = post(2**62, "one\nmist  net", author_id=BEA, metrics=counts, url="https://x.com/bea/1")
    async with stored(url, given_post) as database:
        (hit,) = await hits(database, "mist", limit=1)
    assert (hit.platform, hit.id, hit.author_id, hit.handle, hit.name) == (X, 2**62, BEA, "bea", None)
    assert (hit.text, hit.url, hit.created_at) == ("one\nmist  net", "https://x.com/bea/1", START)
    assert (hit.likes, hit.replies, hit.reposts, hit.views) == (3, 2, 1, 2**40)


@pytest.mark.parametrize("few", [0, 2_000], ids=["of many", "of few"])
async def test_pages_follow_each_other_by_time_over_both_platforms(
    url: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.social.store.post_listing._FEW", few)
    monkeypatch.setattr("mistnet.social.store.post_listing._SPARE", 0.01)  # the first windows hold too few matches
    given_posts = [
        post(
            each if each % 3 else 1_000 - each,
            "mist",
            platform=X if each % 3 else THREADS,
            created_at=START + timedelta(days=each // 2),
        )
        for each in range(1, 21)
    ]
    in_order = sorted(given_posts, key=lambda each: (each.created_at, each.platform, each.id), reverse=True)
    async with stored(url, *given_posts) as database:
        pages, before = list[ListedPost](), None
        while page := await hits(database, "mist", limit=7, before=before):
            pages += page
            before = page[-1].cursor
    assert [(each.platform, each.id) for each in pages] == [(each.platform, each.id) for each in in_order]


async def test_an_author_is_known_by_the_present_handle(url: str) -> None:
    given_posts = (post(1, "mist"), post(2, "mist", author_id=BEA), post(3, "mist", platform=THREADS))
    async with stored(url, *given_posts) as database:
        assert await found(database, "mist", author="@ANN") == [1]
        assert await found(database, "mist", author="ann_threads") == [3]
        assert await found(database, "mist", author="nobody") == []
        async with database.transaction() as connection:
            await write_users(connection, [user(ANN, "anna")], START)
        assert await found(database, "mist", author="ann") == []
        assert await found(database, "mist", author="anna") == [1]


async def test_a_span_of_time_has_its_beginning_in_it_and_its_end_not(url: str) -> None:
    def day(number: int) -> datetime:
        return START + timedelta(days=number)

    async with stored(url, *(post(each, "mist", created_at=day(each)) for each in (1, 2, 3))) as database:
        assert await found(database, "mist", since=day(2)) == [3, 2]
        assert await found(database, "mist", until=day(2)) == [1]
        assert await found(database, "mist", since=day(2), until=day(3)) == [2]


async def test_a_post_that_changed_is_found_by_its_new_words_only(url: str) -> None:
    async with stored(url, post(1, "mist"), post(2, "mist", platform=THREADS)) as database:
        async with database.transaction() as connection:
            await write_posts(connection, [post(1, "東京"), post(2, "fog", platform=THREADS)], START)
        assert await found(database, "mist") == []
        assert await found(database, "東京 OR fog") == [1, 2]


def test_no_text_whatever_makes_a_database_fail(url: str) -> None:
    fill(url, post(1, "a b 東京"))
    database = open_database(url)
    with asyncio.Runner() as runner:

        @settings(max_examples=count_examples(100), database=None)
        @given(st.text(max_size=200) | ODD)
        def holds(query: str) -> None:
            try:
                parse(query)
            except BadSearch:
                return
            assert runner.run(found(database, query)) in ([], [1])

        holds()
        for query in ("x OR " * 200, "-x " * 332 + "y", '"' + "x " * 499, "北" * 1000, "x'y\\" * 250, "x*" * 500):
            assert runner.run(found(database, query)) == []
        runner.run(database.close())


SIDE_BY_SIDE = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=2)


def has(words: Sequence[str], sought: Sequence[str]) -> bool:
    return any(list(words[n : n + len(sought)]) == list(sought) for n in range(len(words)))


def test_the_databases_find_what_a_plain_reading_of_the_query_finds(url: str) -> None:
    """Three choices of phrases and some that are left out, against texts of five words."""
    made = [[VOCABULARY[(n * k + k) % 5] for k in range(1, n % 4 + 2)] for n in range(60)]

    async def fill() -> None:
        async with stored(url, *(post(n + 1, ", ".join(words)) for n, words in enumerate(made))):
            pass

    with asyncio.Runner() as runner:
        runner.run(fill())
        database = open_database(url)

        @settings(max_examples=count_examples(60), database=None)
        @given(
            st.lists(st.lists(SIDE_BY_SIDE, min_size=1, max_size=2), min_size=1, max_size=3),
            st.lists(SIDE_BY_SIDE, max_size=2),
        )
        def holds(choices: list[list[list[str]]], without: list[list[str]]) -> None:
            written = [" OR ".join(f'"{" ".join(each)}"' for each in choice) for choice in choices]
            query = " ".join([*written, *(f'-"{" ".join(each)}"' for each in without)])
            expected = [
                n + 1
                for n, words in enumerate(made)
                if all(any(has(words, each) for each in choice) for choice in choices)
                and not any(has(words, each) for each in without)
            ]
            assert runner.run(found(database, query)) == expected[::-1]

        holds()
        runner.run(database.close())


ROWS = 50_000


async def fill_many(database: Database) -> None:
    series = (
        f"generate_series(1, {ROWS}) AS n"
        if database.dialect == "postgresql"
        else f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) SELECT n FROM s)"
    )
    async with database.transaction() as connection:
        await connection.execute(
            text(
                f"""INSERT INTO posts (platform, id, author_id, text, text_clean, created_at, raw, first_seen_at,
                    last_updated_at)
                SELECT 'x', n, 1, 'mist', 'mist word' || (n % 500), '2026-03-01 12:00:00.000000', '{{}}',
                    '2026-03-01 12:00:00.000000', '2026-03-01 12:00:00.000000'
                FROM {series}"""
            )
        )


async def plans(database: Database, query: str, *, few: bool) -> str:
    """How the very statement of a search would be run."""
    if database.dialect == "sqlite":
        explain, asked = "EXPLAIN QUERY PLAN ", sqlite_search(parse(query), PostSpan(), None, few=few).limit(20)
    else:
        explain, asked = "EXPLAIN ", newest_of(postgresql_search(parse(query), PostSpan(), None), 20)
    async with database.read() as connection:
        compiled = asked.compile(connection.sync_connection, compile_kwargs={"literal_binds": True})
        rows = await connection.exec_driver_sql(explain + str(compiled))
        return "\n".join(str(row[-1]) for row in rows)


async def test_a_search_goes_through_the_index_of_words(url: str) -> None:
    async with stored(url) as database:
        await fill_many(database)
        for analyzed in (False, True):
            if analyzed:
                async with database.read() as connection:
                    await analyze(connection)
            for query, few in (('word7 -word8 OR "mist word9"', True), ("mist", False)):
                plan = await plans(database, query, few=few)
                if database.dialect == "postgresql":
                    assert "posts_created_at" not in plan, plan
                    assert "Bitmap Index Scan on posts_search" in plan or not few, plan
                else:
                    assert "SCAN posts_search VIRTUAL TABLE" in plan, plan
                    assert "SCAN posts\n" not in plan
                    assert ("ORDER BY" in plan) == few, plan
                    assert ("SCAN posts USING COVERING INDEX posts_created_at" in plan) != few, plan
        assert ROWS > _FEW
        assert len(await found(database, "word7", limit=20)) == 20
        assert len(await found(database, "mist", limit=20)) == 20


async def test_a_common_word_is_searched_among_the_latest_posts(postgresql_url: str) -> None:
    def minute(number: int) -> datetime:
        return START + timedelta(minutes=number)

    async with stored(postgresql_url) as database:
        await fill_many(database)
        async with database.transaction() as connection:
            moved = "UPDATE posts SET created_at = '2026-03-01 12:00:00+00'::timestamptz + id * interval '1 minute'"
            await connection.execute(text(moved))
        async with database.read() as connection:
            await analyze(connection)
        newest, half = list(range(ROWS, ROWS - 20, -1)), list(range(ROWS // 2, ROWS // 2 - 20, -1))
        before = PostCursor(minute(ROWS // 2), X, PostId(ROWS // 2 + 1))
        with noted() as seen:
            assert await found(database, "mist", limit=20) == newest
            assert await found(database, "mist", limit=20, author=ANN) == newest
            assert await found(database, "mist", limit=20, before=before) == half
            assert await found(database, "mist", limit=20, until=minute(ROWS // 2 + 1)) == half
            assert await found(database, "mist", limit=20, since=minute(ROWS - 19)) == newest
        searches = [(sql, given) for sql, given in seen if sql.startswith("SELECT anon_1")]
        assert len(searches) == 5, searches  # the first window has enough
        async with database.read() as connection:
            for sql, given in searches:
                plan = "\n".join(row[0] for row in await connection.exec_driver_sql(f"EXPLAIN ANALYZE {sql}", given))
                (read,) = re.findall(r" on posts .*actual .*rows=(\d+)", plan)
                assert int(read) < 200, plan
        assert await found(database, "mist", limit=20, stored_since=minute(1)) == []


def run(url: str, *arguments: str) -> Any:
    return CliRunner().invoke(cli, [*arguments, "--database-url", url])


def test_the_command_shows_one_block_for_each_post(url: str) -> None:
    counts = Metrics(likes=1_200, views=0)
    shown = post(7, "mist\nnet \x1b[31mred", metrics=counts, url="https://x.com/a/7")
    fill(url, post(6, "mist"), shown, post(8, "mist", author_id=BEA))
    told = run(url, "mist OR fog", "--limit", "2")
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout == (
        "@bea on x, 2026-03-01 12:00:00 UTC\n"
        "  mist\n"
        "\n"
        "@Ann on x, 2026-03-01 12:00:00 UTC\n"
        "  mist\n"
        "  net \N{REPLACEMENT CHARACTER}[31mred\n"
        "  1,200 likes, 0 views\n"
        "  https://x.com/a/7\n"
        "\n"
        "more: --before 1772366400000000.x.7\n"
    )


def test_the_command_answers_programs_with_ids_as_text(url: str) -> None:
    fill(url, post(2**60, "mist"), post(2**60 + 1, "mist", author_id=BEA))
    of_bea = ("--author", "bea", "--since", "2026-03-01", "--limit", "1")
    alone = json.loads(run(url, "mist", "--json", *of_bea).stdout)
    page = json.loads(run(url, "mist", "--json", "--limit", "1").stdout)
    assert (alone["posts"], alone["next"]) == (page["posts"], None), "a full page that nothing follows is the last"
    assert [(each["id"], each["author_id"], each["created_at"]) for each in page["posts"]] == [
        (str(2**60 + 1), "2", "2026-03-01T12:00:00Z")
    ]
    assert page["next"] == f"1772366400000000.x.{2**60 + 1}"
    rest = json.loads(run(url, "mist", "--json", "--before", page["next"]).stdout)
    assert ([each["id"] for each in rest["posts"]], rest["next"]) == ([str(2**60)], None)


def test_the_command_says_what_to_try_when_nothing_is_found(url: str) -> None:
    shown = run(url, "mist")
    assert (shown.exit_code, "no posts found: try fewer words" in shown.stdout) == (0, True)
    assert json.loads(run(url, "mist", "--json").stdout) == {"posts": [], "next": None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--", "-fog"), "beside those to leave out"),
        (("",), "name at least one word"),
        (("fog", "--since", "soon"), "the time must be like"),
        (("fog", "--until", "0001-01-01T00:00:00+09:00"), "the time must be like"),
        (("fog", "--author", "a\x00b"), "NUL"),
        (("fog", "--limit", "0"), "--limit"),
        (("fog", "--before", "7"), "the cursor that the page before gave"),
    ],
)
def test_a_bad_search_is_refused_with_the_reason(sqlite_url: str, arguments: tuple[str, ...], said: str) -> None:
    refused = CliRunner().invoke(cli, ["--database-url", sqlite_url, *arguments])
    told = " ".join(refused.stderr.replace("│", " ").split())
    assert (refused.exit_code, said in told) == (2, True), refused.stderr


async def test_on_a_terminal_the_words_that_were_sought_stand_out_and_long_text_is_wrapped(url: str) -> None:
    given_posts = [
        post(3, "the mistletoe, [b]MIST[/b] and smist"),
        post(2, "nets in the 東京タワー"),
        post(1, "word " * 20 + "mist"),
    ]
    async with stored(url, *given_posts) as database:
        found_posts = await hits(database, 'mist OR net* OR "東京"', limit=9)
    screen = io.StringIO()
    console = Console(file=screen, width=40, force_terminal=True, color_system="standard")
    console.print(on_terminal(found_posts, parse('mist OR net* OR "東京"')))
    lines = screen.getvalue().splitlines()
    bright = [part.partition("\x1b[0m")[0] for part in screen.getvalue().split("\x1b[1;33m")[1:]]
    assert bright == ["MIST", "nets", "東京", "mist"]
    assert "[b]" in lines[1]
    assert lines[0] == "\x1b[1m@Ann on x, 2026-03-01 12:00:00 UTC\x1b[0m"
    assert len([line for line in lines if line.startswith("  word ")]) == 3
