"""Nothing that reads strangers' text takes time that grows faster than the text.

Each reader gets hostile texts made of the characters and words its patterns mention: one or more of them repeated, with
others before and behind, brackets and quotes left open. A text four times as long may take 5.3 times as long, which is
2.3 times for each doubling. Time is the CPU time of this thread, and the least of several tries counts, because other
load can only add to it.
"""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from mistnet.kit.text import redact, split_addresses
from mistnet.shops.extraction import currencies, documents, price_text, visible, words
from mistnet.shops.extraction.read import read_page
from mistnet.shops.links.finding import find_urls
from mistnet.shops.links.mentions import find_codes, find_title, links_to_keep
from mistnet.shops.links.naming import canonical_link, inline_target
from mistnet.shops.model import PageUnreadable
from mistnet.social import search_query as marks
from mistnet.social import search_query as query
from mistnet.social.errors import BadSearch
from mistnet.social.model import LinkMention, Post, PostId, UserId, X

AT = datetime(2027, 1, 1, tzinfo=UTC)
GROWTH = 2.3**2
LONGER = 4
TRIES = 5
ENOUGH_SECONDS = 0.001
"""Of what is quicker, a longer text is taken: the clock itself has to be left out of account."""


class Hostile(NamedTuple):
    before: str
    repeated: str
    behind: str = ""

    def text(self, length: int) -> str:
        room = length - len(self.before) - len(self.behind)
        return self.before + self.repeated * max(room // len(self.repeated), 1) + self.behind


class Reader(NamedTuple):
    """What reads text, the pieces hostile texts are made of, and texts that were too slow for it once."""

    read: Callable[[str], object]
    pieces: Sequence[str]
    known: Sequence[Hostile] = ()
    length: int = 6_000
    longest: int = 50_000
    samples: int = 30

    def texts(self) -> Iterator[Hostile]:
        """All of one piece, and some of all the others; always the same."""
        yield from self.known
        yield from (Hostile("", each) for each in self.pieces)
        pairs = [*itertools.permutations(self.pieces, 2)]
        others = [Hostile("", one + two) for one, two in pairs] + [Hostile(one, two) for one, two in pairs]
        chosen = random.Random(1)
        yield from chosen.sample(others, min(self.samples, len(others)))
        for _ in range(self.samples // 2):
            before, repeated, behind = (chosen.choices(self.pieces, k=k) for k in (2, 3, 2))
            yield Hostile("".join(before), "".join(repeated), "".join(behind))


def post(text: str, links: Sequence[str] = ()) -> Post:
    beside = [LinkMention(url=each) for each in links]
    return Post(platform=X, id=PostId(1), author_id=UserId(2), text=text, created_at=AT, raw=b"", links=beside)


def page(text: str) -> object:
    try:
        return read_page(text.encode("utf-8", "replace"), url="https://shop.example/p/1", content_type="text/html")
    except PageUnreadable as error:
        return error


def json_ld(text: str) -> object:
    return page(f"<html><script type='application/ld+json'>{text}</script></html>")


def search(text: str) -> None:
    with suppress(BadSearch):
        query.parse(text[: query.LONGEST_QUERY])


READERS = {
    "urls": Reader(
        find_urls,
        [
            *("https://", "http://", "shopee.tw/", "-i.1.2", "(", ")", "[", "a.com", "/", "?", "#", ".", "и", "é", "@"),
            *("a", "-", "_", " ", ":", "，", "x=", "'", "t.co/"),
        ],
        [
            Hostile("", "(https://shopee.tw/"),
            Hostile("", "shopee.tw/-i.1.2?("),
            Hostile("http://a.b/", "и."),
            Hostile("http://a.com/)", "и."),
            Hostile("http://a.com/", "(a)"),
            Hostile("", "t.co/("),
        ],
    ),
    "links of a post": Reader(
        lambda text: links_to_keep(post(text)),
        [
            *("https://m.tb.cn/h.5abcDEF?tk=A ", "https://a.com/1 ", "「", "」", "(aB3dE6gH9jk)", "￥abc1234￥", "淘"),
            *(" ", "(", "a.com/?a=1&b", "l.facebook.com/?u=", "https%3A%2F%2F", "a.com…"),
        ],
        [Hostile("", "https://m.tb.cn/h.5abcDEF「"), Hostile("", "(aB3dE6gH9jk) ")],
        length=3_000,
        samples=8,
    ),
    "links beside a post": Reader(
        lambda text: links_to_keep(post(text, links=["https://t.co/a", "https://a.com/long"])),
        ["https://t.co/a ", "https://t.co/a", "a.com/lo… ", "https://a.com/lo...", " "],
        length=3_000,
        samples=4,
    ),
    "codes": Reader(
        lambda text: (find_codes(text), find_title(text)),
        ["「", "」", "【", "】", "(", ")", "aB3dE6gH9jk", "￥", "$", "中", "淘", "a", "1", " ", "https://a.com/"],
        [Hostile("", "(abcdefgh1)"), Hostile("(aB3dE6gH9jk)", "https://a.com/ ")],
    ),
    "names": Reader(
        canonical_link,
        [
            *("https://", "a.com/", "%", "%41", "&amp;", "&", "=", "?", "#", ";", "/", "a", ".", "xn--", "[", ":", "@"),
            *("shopee.tw/", "http://l.facebook.com/?u=", "é", "-"),
        ],
        [Hostile("https://a.com/", ";"), Hostile("https://shopee.tw/", "-i.1."), Hostile("http://a.com/?", "&amp;")],
    ),
    "hops": Reader(
        inline_target,
        ["<meta ", "http-equiv=", "refresh", "url=", '"', "'", "var url=", "location", "=", ".replace(", " ", ">"],
        samples=20,
    ),
    "prices": Reader(
        price_text.parse_price,
        ["1", "$", "€", ".", ",", "'", " ", "-", "x", "*", "?", "to", "NT$", "kr", "%", "万", "tr", "save "],
        [Hostile("", "1 "), Hostile("", "*1"), Hostile("", "1€")],
        length=450,
        longest=450,
        samples=20,
    ),
    "numbers": Reader(
        lambda text: [*price_text.numerals(price_text.plain(text))],
        ["1", " 111", "$", "€", ".", ",", "'", " ", "万", "tr", "１", "千"],
        length=1_000,
        longest=8_000,
        samples=10,
    ),
    "currencies": Reader(currencies.code_of, ["$", "NT", " ", "kr", "."], samples=5),
    "stock": Reader(words.availability_words, ["sold", "out", " ", "not ", "currently ", "in stock"], samples=5),
    "searches": Reader(
        search, ["a", '"', "-", "*", "OR ", " ", "é", "中", "\u0301"], length=200, longest=200, samples=20
    ),
    "found words": Reader(
        lambda text: [*marks.pattern(query.parse('"a b \u0301 \u0301 \u0301 \u0301 c"')).finditer(text)],
        ["a", "b", "\u0301", " ", "_", "c", "-", "é"],
        [Hostile("a b", "\u0301")],
    ),
    "redaction": Reader(
        redact,
        ["aa", "://", ":", "@", "/", "bearer ", "token", "=", '"', "'", "x-", "password", " ", "authorization:", "+"],
    ),
    "charsets": Reader(
        lambda text: documents.decode(text.encode("latin-1")),
        ["<meta ", "charset", "=", '"', "gbk", ">", " ", "<?xml ", "encoding", "é"],
        [Hostile("<meta charset=punycode>" + 2_000 * "é" + "-", "a")],
        samples=20,
    ),
    "content types": Reader(
        lambda text: documents.decode(b"\xff", content_type=text), ["charset", "=", '"', "gbk", " ", ";"], samples=10
    ),
    "JSON-LD": Reader(
        json_ld,
        [
            *("{", "}", "[", "]", '"', ",", ":", "\\", "/*", "*/", "//", "<!--", "-->", "<![CDATA[", "\n", " ", "1"),
            *("e5", "&#", "&amp;", '"a":', '{"@type":"Product","name":"a"},'),
        ],
        [Hostile("", '\\"'), Hostile("", "/*"), Hostile('{"a":"', "\\"), Hostile("&#", "1"), Hostile("[1e", "9", "]")],
    ),
    "pages": Reader(
        page,
        [
            *("<div>", "</div>", "<p class=price>", "<p class=stock>", "<div class=stock>", "<b>", "<a href=x>"),
            *("<h1>", "<p itemprop=price>", "<div itemscope itemprop=offers>", "<span itemscope>", "$1", "SKU."),
            *("_", " 1", "<del>", "<table>", "<!--", "&#", '"sku":', "<i itemprop=name>"),
        ],
        [
            Hostile("<p>", "<div>"),
            Hostile("", "<div class=stock>"),
            Hostile("", "<button><object>"),
            Hostile("<div itemscope>", "<b>", "<i itemscope itemprop=a></i>" * 100),
            Hostile("<script>", "<script>"),
            Hostile("", "<!--"),
        ],
        samples=10,
    ),
    "numbers of things": Reader(
        lambda text: [*visible.labelled_number(text)],
        ["SKU", ".", "_", "1", " ", "Art", "-", "Cod", " de", "No", "/", "#", "Ref"],
        [Hostile("", "SKU./" * 20 + "1/")],
    ),
    "lists": Reader(split_addresses, [",", " ", "a", "://", "+", "."], samples=10),
}


@pytest.mark.parametrize("name", READERS)
def test_a_text_that_is_four_times_as_long_takes_at_most_five_times_as_long(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pages with few tags are not checked for nesting. Passing that number makes a step, which is not growth.
    monkeypatch.setattr(documents, "_FEW_TAGS", 0)
    reader = READERS[name]
    reader.read("warm")
    slow = next((each for each in reader.texts() if not is_linear(reader, each)), None)
    assert slow is None


def is_linear(reader: Reader, hostile: Hostile) -> bool:
    length = reader.length
    while seconds(reader, hostile.text(length)) < ENOUGH_SECONDS and 2 * length <= reader.longest:
        length *= 2
    # What is slow by its nature is slow at every length; what only seems so is not.
    return any(grows_with_its_length(reader, hostile, part) for part in (length, length // 2, length))


def grows_with_its_length(reader: Reader, hostile: Hostile, length: int) -> bool:
    text, longer = hostile.text(length), hostile.text(LONGER * length)
    short, long = seconds(reader, text), seconds(reader, longer)
    for _ in range(TRIES):
        if long <= max(GROWTH * short, ENOUGH_SECONDS):
            return True
        short, long = min(short, seconds(reader, text)), min(long, seconds(reader, longer))
    return False


def seconds(reader: Reader, text: str) -> float:
    started = time.thread_time()
    reader.read(text)
    return time.thread_time() - started
