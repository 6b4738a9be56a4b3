"""All links of a post, wherever in it they stand."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import msgspec

from mistnet.domain.links import Canonical, LinkKind, Mention, Place, Shop
from mistnet.domain.plural import counted
from mistnet.domain.social import LinkMention, Platform, Post
from mistnet.links.codes import find_codes, find_title
from mistnet.links.finding import find_urls
from mistnet.links.naming import canonical
from mistnet.links.refused import Refused
from mistnet.links.shop_urls import blanked

CODE_SCHEME: Final = "taokouling:"
LEFT_OUT_SCHEME: Final = "left-out:"
MOST_LINKS: Final = 500
"""So many links of one post are kept. What it has beyond them is recorded as one link that is refused."""
_PLACES: Final = {place.value: place for place in Place}
_TO_A_POST: Final = "it leads to a post, and posts are collected by themselves"
_CUT_OFF: Final = ("…", "...")
_SHORTENED: Final = re.compile(r"(?:https?://)?t\.co/", re.IGNORECASE)
_OWN_POST: Final = re.compile(
    r"https?://(?:(?:www\.|mobile\.)?(?:x|twitter)\.com/(?:[^/?#]+|i/web)/status/[0-9]+"
    r"|(?:www\.)?threads\.(?:net|com)/(?:@[^/?#]+/post|t)/[^/?#]+)",
    re.IGNORECASE,
)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A link of a post that is not followed, and why."""

    url: str
    place: Place
    reason: str


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What a post links to, and what was left aside: nothing goes unsaid. Beyond `MOST_LINKS` they are only counted."""

    mentions: Sequence[Mention]
    refusals: Sequence[Refusal]
    left_out: int = 0


class _Posted(msgspec.Struct, frozen=True):
    """A URL where it stands, and where upstream says it leads."""

    url: str
    place: Place
    leads_to: str


class _Known:
    """The links that come beside a post's text: nearly all of X's stand in the text as well."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        bare = (each.partition("://")[2].removeprefix("www.") for each in names)
        self._bare, self._whole = sorted(bare), sorted(names)

    def blanked(self, text: str) -> str:
        """With blanks where one of them stands by itself: it need not be searched for."""
        for url in sorted(filter(None, self.names), key=len, reverse=True)[:MOST_LINKS]:
            text = blanked(text, [*_standing_alone(url, text)])
        return text

    def continues(self, shown: str) -> bool:
        """Whether one of them begins as a link that is shown cut off."""
        return _begins_one(self._bare, shown.partition("://")[2] or shown) or _begins_one(self._whole, shown)


def _standing_alone(url: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(url)
    while start >= 0:
        end = start + len(url)
        if end == len(text) or text[end].isspace():
            yield start, end
        start = text.find(url, end)


def _begins_one(ordered: Sequence[str], beginning: str) -> bool:
    place = bisect_left(ordered, beginning)
    return place < len(ordered) and ordered[place].startswith(beginning)


def links_of(post: Post) -> Sequence[Mention]:
    """Each link once, however often the post shows it."""
    return examine(post).mentions


def links_to_keep(post: Post) -> Sequence[Mention]:
    """All of them, and those that are refused under their own words. Posts that are linked are collected as posts."""
    found = examine(post)
    refused = {each.url: each for each in found.refusals if each.reason != _TO_A_POST}
    return [*found.mentions, *map(_as_refused, refused.values()), *_left_out(post, found.left_out)]


def _as_refused(refusal: Refusal) -> Mention:
    about = Canonical(url_norm=refusal.url, host="", shop=Shop.WEB, kind=LinkKind.REFUSED)
    return Mention(url=refusal.url, place=refusal.place, canonical=about, title=refusal.reason)


def _left_out(post: Post, count: int) -> Iterator[Mention]:
    """One for all of them, under a name no other post can have."""
    if count:
        name = f"{LEFT_OUT_SCHEME}{post.platform}:{post.id}"
        about = Canonical(url_norm=name, host="", shop=Shop.WEB, kind=LinkKind.REFUSED)
        more = counted(count, "more link", "more links")
        why = f"the post has {more} than the {MOST_LINKS:,} that are kept of one post"
        yield Mention(url=name, place=Place.TEXT, canonical=about, title=why)


def examine(post: Post) -> Examined:
    """As `links_of`, and what it left out."""
    mentions: dict[str, Mention] = {}
    refusals: dict[tuple[str, Place], Refusal] = {}
    left_out: set[str] = set()
    title = cache(lambda: find_title(post.text))  # the Taobao app writes one beside the short links it shares
    for posted in _posted(post):
        if len(mentions) + len(refusals) >= MOST_LINKS:
            left_out.add(posted.leads_to)
            continue
        named = _named(posted.leads_to)
        if isinstance(named, Refused):
            refusal = Refusal(url=posted.url, place=posted.place, reason=named.reason)
            refusals.setdefault((posted.url, posted.place), refusal)
        else:
            shared = title() if named.shop is Shop.TAOBAO and named.kind is LinkKind.SHORT else None
            mention = Mention(url=posted.leads_to, place=posted.place, canonical=named, title=shared)
            mentions.setdefault(named.url_norm, mention)
    for mention in _codes(post):
        if len(mentions) + len(refusals) < MOST_LINKS:
            mentions.setdefault(mention.canonical.url_norm, mention)
        elif mention.canonical.url_norm not in mentions:
            left_out.add(mention.url)
    left_out -= {each.url for each in mentions.values()} | {url for url, _ in refusals}
    return Examined(mentions=[*mentions.values()], refusals=[*refusals.values()], left_out=len(left_out))


def _posted(post: Post) -> Iterator[_Posted]:
    beside = [*map(_beside, post.links)]
    known = _Known({name for each in beside for name in (each.url, each.leads_to)} | {*_own_media(post)})
    for url in _in_text(post.text, known):
        if not (post.reposted and _is_xs_own(post, url)):
            yield _Posted(url, Place.TEXT, url)
    yield from beside
    for told in (post.quoted, post.reposted):
        for url in _in_text((told and told.text) or "", known):
            if not _is_xs_own(post, url):
                yield _Posted(url, Place.QUOTED, url)


def _own_media(post: Post) -> Iterator[str]:
    """A picture has a short link in the text like any page; it leads to the post itself."""
    for told in (post, post.quoted, post.reposted):
        yield from (each.shown_as for each in (told.media if told else ()) if each.shown_as)


def _is_xs_own(post: Post, url: str) -> bool:
    """Told text has X's short links, cut off at times; the post it is of comes along and says where they lead."""
    return post.platform is Platform.X and _SHORTENED.match(url) is not None


def _beside(link: LinkMention) -> _Posted:
    return _Posted(link.url, _PLACES.get(link.place or "", Place.ENTITY), link.expanded_url or link.url)


def _in_text(text: str, known: _Known) -> Iterator[str]:
    """A link shown cut off is left to the place that has it whole."""
    for found in find_urls(known.blanked(text)):
        cut_off = text.startswith(_CUT_OFF, found.end) and known.continues(found.url)
        if found.url not in known.names and not cut_off:
            yield found.url


def _named(url: str) -> Canonical | Refused:
    if _OWN_POST.match(url):
        return Refused(_TO_A_POST)
    return canonical(url)


def _codes(post: Post) -> Iterator[Mention]:
    quoted = [told.text for told in (post.quoted, post.reposted) if told and told.text]
    for place, text in ((Place.TEXT, post.text), *((Place.QUOTED, each) for each in quoted)):
        for found in find_codes(text):
            yield Mention(url=found.verbatim, place=place, canonical=code_name(found.code), title=found.title)


def code_name(code: str) -> Canonical:
    """A code has no host and leads nowhere by itself."""
    return Canonical(url_norm=f"{CODE_SCHEME}{code}", host="", shop=Shop.TAOBAO, kind=LinkKind.CODE)
