"""Posts as JSON bytes. Each is rendered once; its author and quoted or repeated post are inserted later."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from json.encoder import encode_basestring_ascii
from typing import Any

from mistnet.sim.clock import DAY_MS, HOUR_MS, Draw, SimCache, legacy_date, mix, time_of
from mistnet.sim.content import Content, SimWriter, article_of, card_of
from mistnet.sim.ledger import follow_list_price, posts_price
from mistnet.sim.people import FIRST_POST_MS
from mistnet.sim.posts import KIND, DraftKind
from mistnet.sim.users import Users, dump
from mistnet.sim.world import PostFate, SimPost, World

KEPT_BYTES = 128 * 1024 * 1024
GROWTH_AGES = (HOUR_MS // 12, HOUR_MS, 6 * HOUR_MS, DAY_MS, 3 * DAY_MS, 10 * DAY_MS)
GROWTH_PERCENT = (0, 2, 20, 45, 70, 85, 100)
VIEWS_SINCE_MS = FIRST_POST_MS + 11 * 365 * DAY_MS  # views are counted since 2023

Piece = bytes | int  # an author's index is replaced by their object
Pieces = tuple[list[Piece], int | None, list[Piece]]  # before the nested post, its id, after it


class RenderPlace(IntEnum):
    """The context of a post decides some of its keys."""

    LIST = 0
    LOOKUP = 1
    QUOTED = 2
    RETWEETED = 3


class Renderer:
    def __init__(self, world: World) -> None:
        self._world = world
        self.users = Users(world)
        self.writer = SimWriter(world, self.users)
        self._kept: SimCache[tuple[int, int, str], Pieces] = SimCache(KEPT_BYTES)

    def post(self, post_id: int, now_ms: int, place: RenderPlace = RenderPlace.LIST) -> bytes:
        post = self._world.post(post_id)
        if post is None:
            raise LookupError(post_id)
        return self.known(post, now_ms, place)

    def listed(self, author: int, post_id: int, mark: int, now_ms: int) -> bytes:
        """The same without another lookup of the post, for long lists."""
        if mark & KIND != DraftKind.RETWEET:
            key = self._key(author, post_id, growth_step(post_id, now_ms), now_ms, RenderPlace.LIST)
            if pieces := self._kept.get(key):
                return self._assemble(pieces, now_ms, RenderPlace.QUOTED)
        return self.known(self._world.post_at(author, post_id, mark), now_ms)

    def known(self, post: SimPost, now_ms: int, place: RenderPlace = RenderPlace.LIST) -> bytes:
        """A native retweet shows the counts of the original."""
        counted = post.original or post.id if post.kind is DraftKind.RETWEET else post.id
        step = growth_step(counted, now_ms)
        key = self._key(post.author, post.id, step, now_ms, place)
        pieces = self._kept.get(key)
        if pieces is None:
            pieces = self._pieces(post, step, key[2], place)
            written = sum(len(piece) for piece in pieces[0] + pieces[2] if isinstance(piece, bytes))
            # 600 for the objects around the text.
            self._kept.put(key, pieces, weight=600 + written)
        return self._assemble(
            pieces, now_ms, RenderPlace.RETWEETED if post.kind is DraftKind.RETWEET else RenderPlace.QUOTED
        )

    def _key(self, author: int, post_id: int, step: int, now_ms: int, place: RenderPlace) -> tuple[int, int, str]:
        # The handle is in every URL of a post: after a rename it is rendered again.
        return post_id, step * 4 + place, self._world.people[author].handle_at(now_ms)

    def _assemble(self, pieces: Pieces, now_ms: int, inner: RenderPlace) -> bytes:
        before, original, after = pieces
        author = self.users.author
        whole = [piece if isinstance(piece, bytes) else author(piece, now_ms) for piece in before]
        # Looked at now, because the original may be deleted by now.
        if original is not None:
            repeated = self._world.post(original)
            shown = repeated is not None and self._world.fate_of(repeated, now_ms) is PostFate.SHOWN
            whole.append(self.known(repeated, now_ms, inner) if repeated and shown else b"null")
        whole += [piece if isinstance(piece, bytes) else author(piece, now_ms) for piece in after]
        return b"".join(whole)

    def _pieces(self, post: SimPost, step: int, handle: str, place: RenderPlace) -> Pieces:
        counted = post
        if post.kind is DraftKind.RETWEET and (original := self._world.post(post.original or 0)):
            content, counted = self._retweet(original, post.at_ms), original
        else:
            content = self.writer.content(post)
        metrics = _metrics(self._world, counted, step)
        text = encode_basestring_ascii(content.text)
        conversation = self._world.root_of(post)
        views = "null" if metrics["viewCount"] is None else metrics["viewCount"]
        head = (
            f'{{"type":"tweet","id":"{post.id}","url":"https://x.com/{handle}/status/{post.id}",'
            f'"twitterUrl":"https://twitter.com/{handle}/status/{post.id}","text":{text},"source":"Twitter for iPhone",'
            f'"retweetCount":{metrics["retweetCount"]},"replyCount":{metrics["replyCount"]},"likeCount":{metrics["likeCount"]},'
            f'"quoteCount":{metrics["quoteCount"]},"viewCount":{views},"createdAt":"{legacy_date(post.at_ms)}",'
            f'"lang":"{content.language}","bookmarkCount":{metrics["bookmarkCount"]},'
            f'{_reply_fields(post, content, conversation, place)},"author":'
        )
        tail = f',{_attachments(post, content, place)},"quoted_tweet":'
        article = dump(article_of(post.id)) if content.article else "null"
        shown_article = "" if place is RenderPlace.LOOKUP else f',"article":{article}'
        end = f',"isLimitedReply":false{shown_article},"communityInfo":null}}'.encode()
        start: list[Piece] = [head.encode(), post.author]
        nested = place in {RenderPlace.QUOTED, RenderPlace.RETWEETED}
        if post.kind is DraftKind.RETWEET:
            return [*start, f'{tail}null,"retweeted_tweet":'.encode()], post.original, [end]
        if post.original is None or nested:
            return [*start, f'{tail}null,"retweeted_tweet":null'.encode()], None, [end]
        return [*start, tail.encode()], post.original, [b',"retweeted_tweet":null', end]

    def _retweet(self, original: SimPost, at_ms: int) -> Content:
        """The first 140 characters, with the prefix of a native retweet."""
        source = self.writer.content(original)
        person = self._world.people[original.author]
        content = Content(language=source.language)
        content.say("RT ")
        content.mention(person.id, person.handle_at(at_ms), self.users.face(person).name)
        content.say(": ")
        room = 140 - content.length
        content.say(source.text if source.length <= room else source.text[: room - 1] + "\N{HORIZONTAL ELLIPSIS}")
        content.shown_to = content.length
        return content


def growth_step(post_id: int, now_ms: int) -> int:
    """Counts grow in a few steps and then stay, so that rendered posts can be cached."""
    return bisect_right(GROWTH_AGES, now_ms - time_of(post_id))


def _metrics(world: World, post: SimPost, step: int) -> dict[str, int | None]:
    luck = mix(world.seed, Draw.METRICS, post.id)
    person = world.people[post.author]
    peak = 20_000 // (person.index + 2) if person.star else 40
    likes = int(peak * ((luck & 0xFFFF) / 0x10000) ** 4)
    percent = GROWTH_PERCENT[step]
    likes = likes * percent // 100
    return {
        "likeCount": likes,
        "retweetCount": likes // 7,
        "replyCount": likes // 11,
        "quoteCount": likes // 60,
        "bookmarkCount": likes // 20,
        "viewCount": likes * 90 + (luck >> 20) % 60 * percent // 100 if post.at_ms >= VIEWS_SINCE_MS else None,
    }


def _reply_fields(post: SimPost, content: Content, conversation: int, place: RenderPlace) -> str:
    """A quoted reply has no reply fields; a greeting has a user but is not a reply."""
    user, name = "null", "null"
    if post.parent and place is not RenderPlace.QUOTED:
        user, name = f'"{post.parent.user_id}"', f'"{post.parent.handle}"'
    elif content.greeted:
        user, name = f'"{content.greeted.id}"', f'"{content.greeted_as}"'
    parent = f'"{post.parent.id}"' if post.parent else "null"
    is_reply = "true" if post.parent else "false"
    return (
        f'"isReply":{is_reply},"inReplyToId":{parent},"conversationId":"{conversation}",'
        f'"displayTextRange":[{content.shown_from},{content.shown_to}],"inReplyToUserId":{user},"inReplyToUsername":{name}'
    )


def _attachments(post: SimPost, content: Content, place: RenderPlace) -> str:
    media = dump({"media": content.media}) if content.media else "{}"
    card = "null"
    if content.card_url:
        card = dump(card_of(content.card_url, by_id=place is RenderPlace.LOOKUP, luck=post.id >> 7))
    entities: dict[str, Any] = {
        "hashtags": content.hashtags,
        "symbols": [],
        "timestamps": [],
        "urls": content.urls,
        "user_mentions": content.mentions,
    }
    if post.at_ms % 4:  # some posts contain every list, most only non-empty ones
        entities = {name: found for name, found in entities.items() if found}
    return f'"extendedEntities":{media},"card":{card},"place":{{}},"entities":{dump(entities)}'


POSITION_BYTES = 9
SUCCESS = b'"status":"success","msg":"success"'
SUCCESS_WITH_CODE = b'"status":"success","code":0,"msg":"success"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PageShape:
    """`records` is the key of the list."""

    records: str
    price: Callable[[int], int]
    before: bytes = b""
    after: bytes = b""
    paged: bool = True
    holds_posts: bool = True


SEARCH = PageShape(records="tweets", price=posts_price)
LOOKUP = PageShape(records="tweets", price=posts_price, before=SUCCESS_WITH_CODE, paged=False)
PROFILES = PageShape(records="users", price=lambda users: users, after=SUCCESS, paged=False, holds_posts=False)
FOLLOWERS = PageShape(records="followers", price=follow_list_price, before=SUCCESS_WITH_CODE, holds_posts=False)
FOLLOWINGS = PageShape(records="followings", price=follow_list_price, before=SUCCESS_WITH_CODE, holds_posts=False)


class Records(StrEnum):
    """What a fault does to the records of a page."""

    KEPT = "kept"
    MISSING = "missing"
    NULL = "null"


@dataclass(slots=True, kw_only=True)
class SimListing:
    """One page. `here` leads to this same page again; `above` are the posts above it, from there upwards.

    Of a follow list, `whole` is how many are on it, and `after` how many of them come after this page.
    """

    shape: PageShape
    records: list[bytes]
    more: bool = False
    cursor: str = ""
    here: str = ""
    above: Iterator[bytes] | None = None
    whole: int = 0
    after: int = 0
    written: Records = Records.KEPT
    price: int | None = None
    spoiled: list[str] = field(default_factory=list)

    @property
    def credits_due(self) -> int:
        return self.shape.price(len(self.records)) if self.price is None else self.price

    @property
    def shows_posts(self) -> bool:
        return self.shape.paged and self.shape.holds_posts and bool(self.records)

    def body(self) -> bytes:
        shape = self.shape
        parts = [shape.before] if shape.before else []
        key = f'"{shape.records}":'.encode()
        match self.written:
            case Records.KEPT:
                parts.append(key + b"[" + b",".join(self.records) + b"]")
            case Records.MISSING:
                parts.append(b'"data":[]')
            case Records.NULL:
                parts.append(key + b"null")
        if shape.paged:
            parts.append(
                b'"has_next_page":%s,"next_cursor":"%s"' % (b"true" if self.more else b"false", self.cursor.encode())
            )
        if shape.after:
            parts.append(shape.after)
        return b"{" + b",".join(parts) + b"}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """An answer that is not a list."""

    body: bytes
    credits_due: int


class CursorKind(StrEnum):
    """Cursors have a prefix for each endpoint, and are invalid elsewhere."""

    SEARCH = "DAACCgAC"
    FOLLOWS = "DAAGCgAG"


def cursor_to(kind: CursorKind, position: int) -> str:
    return kind + urlsafe_b64encode(position.to_bytes(POSITION_BYTES, "big")).decode()


def position_of(kind: CursorKind, cursor: str) -> int | None:
    """The place of a cursor; None (the first page) if it is empty or invalid."""
    if not cursor.startswith(kind):
        return None
    try:
        position = urlsafe_b64decode(cursor.removeprefix(kind))
    except (NotBase64, ValueError):
        return None
    return int.from_bytes(position, "big") if len(position) == POSITION_BYTES else None
