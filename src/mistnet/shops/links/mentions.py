"""All links of a post: in its text, beside it, and in posts that it quotes."""

# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mistnet.kit.text import counted
from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.links.address import RefusedUrl
from mistnet.shops.links.finding import blank_out, find_urls
from mistnet.shops.links.naming import canonical_link
from mistnet.shops.model import Canonical, LinkKind, LinkPlace, Mention
from mistnet.shops.shop import WEB
from mistnet.shops.taobao import TAOBAO
from mistnet.social.model import Post, X

# Between two marks of money. A price stands there too (￥199￥), so at least one letter must be inside.
# The two yen signs look alike and are mixed.
_MARKED: Final = re.compile(r"[￥¥]\s?([A-Za-z0-9]{6,20})\s?[￥¥]|([$€£¢₳₤₴])\s?([A-Za-z0-9]{6,20})\s?\2")
# Brackets and repeated Chinese characters may hold anything: there, only the usual form of a code is believed, and
# other forms only if the text mentions the app.
_BRACKETED: Final = re.compile(
    r"\(([A-Za-z0-9]{8,20})\)|（([A-Za-z0-9]{8,20})）|([\u3400-\u9fff])([A-Za-z0-9]{8,20})\3"
)
# Nothing is marked without one of these; most posts have none.
_HINT: Final = re.compile(r"[￥¥$€£¢₳₤₴(（\u3400-\u9fff]")
_USUAL_LENGTH: Final = 11
_OF_THE_APP: Final = re.compile("淘|天猫|天貓|口令|复制|複製|復制|复製|闲鱼|閒魚")
_MIXED: Final = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9]+")
_LETTER: Final = re.compile(r"[A-Za-z]")
# Between dollars people write shares and formulas; no code is a plain word.
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PRICE: Final = re.compile(
    r"(?:rmb|cny|usd|us|ntd?|twd|hkd?|myr|rm|sgd|php|thb|vnd|idr|rp|brl|eur|jpy|krw)?[0-9]+"
    r"(?:k|w|rmb|cny|usd|ntd?|twd|hkd?|myr|sgd|php|thb|vnd|idr|brl|eur|jpy|krw|yuan|up|off)?",
    re.IGNORECASE,
)
_APPS: Final = frozenset(
    ("淘宝", "淘寶", "手机淘宝", "手機淘寶", "天猫", "天貓", "淘口令", "淘宝网", "闲鱼", "閒魚", "点击链接", "复制")
)
_BRACKETS: Final = {"「": "」", "【": "】", "『": "』"}


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A code, the code as written with its marks, and the title that the app wrote beside it."""

    code: str
    verbatim: str
    title: str | None = None


def find_codes(text: str) -> Sequence[Code]:
    """The codes of a text in order, each once. Prices and parts of URLs are not codes."""
    if not _HINT.search(text) or not _find_marked(text):
        return []
    title = find_title(text)
    codes: dict[str, Code] = {}
    without_urls = blank_out(text, [(found.start, found.end) for found in find_urls(text)], "\n")
    for code, verbatim in _find_marked(without_urls):
        codes.setdefault(code, Code(code=code, verbatim=verbatim, title=title))
    return list(codes.values())


def find_title(text: str) -> str | None:
    """The title in 「」, else in 【】. The app's own name in brackets is not a title."""
    for opening, closing in _BRACKETS.items():
        depth = start = 0  # titles may contain brackets
        for place, mark in enumerate(text):
            if mark == opening:
                depth += 1
                start = place + 1 if depth == 1 else start
            elif mark == closing and depth:
                depth -= 1
                if not depth and (title := text[start:place].strip()) and title not in _APPS:
                    return title
    return None


def _find_marked(text: str) -> Sequence[tuple[str, str]]:
    sure = [
        (each.start(), each[1] or each[3], each[0])
        for each in _MARKED.finditer(text)
        if (_has_letters(each[1]) if each[1] else _stands_out(each[3]))
    ]
    of_the_app = bool(_OF_THE_APP.search(text))
    for each in _BRACKETED.finditer(text):
        code = each[1] or each[2] or each[4]
        is_usual = len(code) == _USUAL_LENGTH and _MIXED.fullmatch(code)
        if is_usual or (of_the_app and _stands_out(code)):
            sure.append((each.start(), code, each[0]))
    return [(code, verbatim) for _, code, verbatim in sorted(sure)]


def _has_letters(code: str) -> bool:
    return bool(_LETTER.search(code)) and not _PRICE.fullmatch(code)


def _stands_out(code: str) -> bool:
    return _has_letters(code) and not _WORD.fullmatch(code)


CODE_SCHEME: Final = "taokouling:"
LEFT_OUT_SCHEME: Final = "left-out:"
MOST_LINKS: Final = 500
"""How many links of one post are kept. The rest are recorded as one refused link."""
_PLACES: Final = {place.value: place for place in LinkPlace}
_TO_A_POST: Final = "it leads to a post, and posts are collected separately"
_UNREAD: Final = "\x00"
_CUT_OFF: Final = ("…", "...")
_SHORTENED: Final = re.compile(r"(?:https?://)?t\.co/", re.IGNORECASE)
_OWN_POST: Final = re.compile(
    r"https?://(?:(?:www\.|mobile\.)?(?:x|twitter)\.com/(?:[^/?#]+|i/web)/status/[0-9]+"
    r"|(?:www\.)?threads\.(?:net|com)/(?:@[^/?#]+/post|t)/[^/?#]+)",
    re.IGNORECASE,
)


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """The links of a post, and those that are not followed, with the reason as their title.

    Beyond `MOST_LINKS` they are only counted.
    """

    mentions: Sequence[Mention]
    refusals: Sequence[Mention]
    left_out: int = 0


class _Posted(msgspec.Struct, frozen=True):
    """A URL as posted, and where upstream says that it leads."""

    url: str
    place: LinkPlace
    leads_to: str


class _Known:
    """The links that come beside a post's text. Nearly all links of X are in the text as well."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        bare = (each.partition("://")[2].removeprefix("www.") for each in names)
        self._bare, self._whole = sorted(bare), sorted(names)

    def blank_out(self, text: str) -> str:
        """The text with blanks in place of these links, which need not be searched for."""
        for url in sorted(filter(None, self.names), key=len, reverse=True)[:MOST_LINKS]:
            spans: list[tuple[int, int]] = []
            start = text.find(url)
            while start >= 0:
                end = start + len(url)
                if end == len(text) or text[end].isspace():
                    spans.append((start, end))
                start = text.find(url, end)
            text = blank_out(text, spans)
        return text

    def continues(self, shown: str) -> bool:
        """Whether one of them begins like a link that is cut off."""
        return _begins_one(self._bare, shown.partition("://")[2] or shown) or _begins_one(self._whole, shown)


def _begins_one(ordered: Sequence[str], beginning: str) -> bool:
    place = bisect_left(ordered, beginning)
    return place < len(ordered) and ordered[place].startswith(beginning)


def links_to_keep(post: Post, shops: ShopCatalog = CATALOG) -> Sequence[Mention]:
    """The links to store: all that are followed, and refused ones under the text that was posted."""
    found = examine(post, shops)
    kept = [*found.mentions, *{each.url: each for each in found.refusals if each.title != _TO_A_POST}.values()]
    if found.left_out:
        # One link for all of them, under a name that is unique to the post.
        more = counted(found.left_out, "more link", "more links")
        why = f"the post has {more} than the {MOST_LINKS:,} that are kept for one post"
        kept.append(_refuse(f"{LEFT_OUT_SCHEME}{post.platform}:{post.id}", LinkPlace.TEXT, why))
    return kept


def _refuse(url: str, place: LinkPlace, why: str) -> Mention:
    about = Canonical(url_norm=url, host="", shop=WEB, kind=LinkKind.REFUSED)
    return Mention(url=url, place=place, canonical=about, title=why)


def examine(post: Post, shops: ShopCatalog = CATALOG) -> Examined:
    """The links of a post, the refused ones, and the number of links left out."""
    quoted = [source.text for source in (post.quoted, post.reposted) if source and source.text]
    # Most posts have neither links nor codes, and looking for them takes as long as decoding a post.
    if not post.links and not any("." in text or _HINT.search(text) for text in (post.text, *quoted)):
        return Examined(mentions=(), refusals=())
    mentions: dict[str, Mention] = {}
    refusals: dict[tuple[str, LinkPlace], Mention] = {}
    left_out: set[str] = set()
    # The Taobao app writes one beside the short links it shares. Read once, however many there are.
    title: str | None = _UNREAD
    for posted in _list_posted(post, shops):
        if len(mentions) + len(refusals) >= MOST_LINKS:
            left_out.add(posted.leads_to)
            continue
        named = RefusedUrl(_TO_A_POST) if _OWN_POST.match(posted.leads_to) else canonical_link(posted.leads_to, shops)
        if isinstance(named, RefusedUrl):
            refusals.setdefault((posted.url, posted.place), _refuse(posted.url, posted.place, named.reason))
        else:
            is_shared = named.shop is TAOBAO and named.kind is LinkKind.SHORT
            if is_shared and title is _UNREAD:
                title = find_title(post.text)
            shared = title if is_shared else None
            mention = Mention(url=posted.leads_to, place=posted.place, canonical=named, title=shared)
            mentions.setdefault(named.url_norm, mention)
    for place, text in ((LinkPlace.TEXT, post.text), *((LinkPlace.QUOTED, each) for each in quoted)):
        for found in find_codes(text):
            name = f"{CODE_SCHEME}{found.code}"
            about = Canonical(url_norm=name, host="", shop=TAOBAO, kind=LinkKind.CODE)
            if len(mentions) + len(refusals) < MOST_LINKS:
                shown = Mention(url=found.verbatim, place=place, canonical=about, title=found.title)
                mentions.setdefault(name, shown)
            elif name not in mentions:
                left_out.add(found.verbatim)
    left_out -= {each.url for each in mentions.values()} | {url for url, _ in refusals}
    return Examined(mentions=[*mentions.values()], refusals=[*refusals.values()], left_out=len(left_out))


def _list_posted(post: Post, shops: ShopCatalog) -> Iterator[_Posted]:
    beside = [
        _Posted(link.url, _PLACES.get(link.place or "", LinkPlace.ENTITY), link.expanded_url or link.url)
        for link in post.links
    ]
    # A picture has a short link in the text, which leads to the post itself.
    sources = [source for source in (post, post.quoted, post.reposted) if source]
    pictures = {each.shown_as for source in sources for each in source.media if each.shown_as}
    known = _Known({name for each in beside for name in (each.url, each.leads_to)} | pictures)
    for url in _in_text(post.text, known, shops):
        if not (post.reposted and _is_xs_own(post, url)):
            yield _Posted(url, LinkPlace.TEXT, url)
    yield from beside
    for source in (post.quoted, post.reposted):
        for url in _in_text((source and source.text) or "", known, shops):
            if not _is_xs_own(post, url):
                yield _Posted(url, LinkPlace.QUOTED, url)


def _is_xs_own(post: Post, url: str) -> bool:
    """Quoted text has X's short links, some cut off. The quoted post is stored too, and says where they lead."""
    return post.platform == X and _SHORTENED.match(url) is not None


def _in_text(text: str, known: _Known, shops: ShopCatalog) -> Iterator[str]:
    """Links that are cut off are skipped if another place has the whole link."""
    for found in find_urls(known.blank_out(text), shops):
        cut_off = text.startswith(_CUT_OFF, found.end) and known.continues(found.url)
        if found.url not in known.names and not cut_off:
            yield found.url
