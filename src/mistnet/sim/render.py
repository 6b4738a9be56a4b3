"""Posts as bytes: each written once, its author and what it repeats put in at the last moment."""

from bisect import bisect_right
from enum import IntEnum
from json.encoder import encode_basestring_ascii
from typing import Any

from mistnet.sim.clock import legacy_date
from mistnet.sim.content import Content, Writer
from mistnet.sim.drafts import KIND, Kind
from mistnet.sim.kept import Kept
from mistnet.sim.media import article_of, card_of
from mistnet.sim.numbers import DAY_MS, HOUR_MS, Draw, mix, time_of
from mistnet.sim.people import FIRST_POST_MS
from mistnet.sim.users import Users, dump
from mistnet.sim.world import Fate, Post, World

KEPT_BYTES = 128 * 1024 * 1024
GROWTH_AGES = (HOUR_MS // 12, HOUR_MS, 6 * HOUR_MS, DAY_MS, 3 * DAY_MS, 10 * DAY_MS)
GROWTH_PERCENT = (0, 2, 20, 45, 70, 85, 100)
VIEWS_SINCE_MS = FIRST_POST_MS + 11 * 365 * DAY_MS  # nobody counted views before 2023

Piece = bytes | int  # an author's index stands where their object goes
Pieces = tuple[list[Piece], int | None, list[Piece]]  # before what is repeated, its id, after


class Place(IntEnum):
    """Where a post is shown decides some of its keys."""

    LIST = 0
    LOOKUP = 1
    QUOTED = 2
    RETWEETED = 3


class Renderer:
    def __init__(self, world: World) -> None:
        self._world = world
        self.users = Users(world)
        self.writer = Writer(world, self.users)
        self._kept: Kept[tuple[int, int, str], Pieces] = Kept(KEPT_BYTES)

    def post(self, post_id: int, now_ms: int, place: Place = Place.LIST) -> bytes:
        post = self._world.post(post_id)
        if post is None:
            raise LookupError(post_id)
        return self.known(post, now_ms, place)

    def listed(self, author: int, post_id: int, mark: int, now_ms: int) -> bytes:
        """The same without looking the post up again: the way of long lists."""
        if mark & KIND != Kind.RETWEET:
            key = self._key(author, post_id, growth_step(post_id, now_ms), now_ms, Place.LIST)
            if pieces := self._kept.get(key):
                return self._assemble(pieces, now_ms, Place.QUOTED)
        return self.known(self._world.post_at(author, post_id, mark), now_ms)

    def known(self, post: Post, now_ms: int, place: Place = Place.LIST) -> bytes:
        """A native retweet shows the counts of what it repeats, so it grows with that."""
        counted = post.original or post.id if post.kind is Kind.RETWEET else post.id
        step = growth_step(counted, now_ms)
        key = self._key(post.author, post.id, step, now_ms, place)
        pieces = self._kept.get(key)
        if pieces is None:
            pieces = self._pieces(post, step, key[2], place)
            written = sum(len(piece) for piece in pieces[0] + pieces[2] if isinstance(piece, bytes))
            self._kept.put(key, pieces, weight=600 + written)
        return self._assemble(pieces, now_ms, Place.RETWEETED if post.kind is Kind.RETWEET else Place.QUOTED)

    def _key(self, author: int, post_id: int, step: int, now_ms: int, place: Place) -> tuple[int, int, str]:
        return post_id, step * 4 + place, self._world.people[author].handle_at(now_ms)

    def _assemble(self, pieces: Pieces, now_ms: int, inner: Place) -> bytes:
        before, original, after = pieces
        author = self.users.author
        whole = [piece if isinstance(piece, bytes) else author(piece, now_ms) for piece in before]
        if original is not None:
            repeated = self._world.post(original)
            shown = repeated is not None and self._world.fate_of(repeated, now_ms) is Fate.SHOWN
            whole.append(self.known(repeated, now_ms, inner) if repeated and shown else b"null")
        whole += [piece if isinstance(piece, bytes) else author(piece, now_ms) for piece in after]
        return b"".join(whole)

    def likes(self, post: Post, now_ms: int) -> int:
        return int(_metrics(self._world, post, growth_step(post.id, now_ms))["likeCount"] or 0)

    def _pieces(self, post: Post, step: int, handle: str, place: Place) -> Pieces:
        counted = post
        if post.kind is Kind.RETWEET and (original := self._world.post(post.original or 0)):
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
        rest = ',"isLimitedReply":false' + ("" if place is Place.LOOKUP else f',"article":{_article(post, content)}')
        end = f'{rest},"communityInfo":null}}'.encode()
        start: list[Piece] = [head.encode(), post.author]
        nested = place in {Place.QUOTED, Place.RETWEETED}
        if post.kind is Kind.RETWEET:
            return [*start, f'{tail}null,"retweeted_tweet":'.encode()], post.original, [end]
        if post.original is None or nested:
            return [*start, f'{tail}null,"retweeted_tweet":null'.encode()], None, [end]
        return [*start, tail.encode()], post.original, [b',"retweeted_tweet":null', end]

    def _retweet(self, original: Post, at_ms: int) -> Content:
        """The first 140 characters, with the mark of a native retweet."""
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
    """Counts grow in a few steps and then stay, so that a written post can be kept."""
    return bisect_right(GROWTH_AGES, now_ms - time_of(post_id))


def _metrics(world: World, post: Post, step: int) -> dict[str, int | None]:
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


def _reply_fields(post: Post, content: Content, conversation: int, place: Place) -> str:
    """A quoted reply does not say whom it answers; a greeting says whom without answering."""
    user, name = "null", "null"
    if post.parent and place is not Place.QUOTED:
        user, name = f'"{post.parent.user_id}"', f'"{post.parent.handle}"'
    elif content.greeted:
        user, name = f'"{content.greeted.id}"', f'"{content.greeted_as}"'
    parent = f'"{post.parent.id}"' if post.parent else "null"
    is_reply = "true" if post.parent else "false"
    return (
        f'"isReply":{is_reply},"inReplyToId":{parent},"conversationId":"{conversation}",'
        f'"displayTextRange":[{content.shown_from},{content.shown_to}],"inReplyToUserId":{user},"inReplyToUsername":{name}'
    )


def _attachments(post: Post, content: Content, place: Place) -> str:
    media = dump({"media": content.media}) if content.media else "{}"
    card = "null"
    if content.card_url:
        card = dump(card_of(content.card_url, by_id=place is Place.LOOKUP, luck=post.id >> 7))
    return f'"extendedEntities":{media},"card":{card},"place":{{}},"entities":{_entities(post, content)}'


def _entities(post: Post, content: Content) -> str:
    found: dict[str, Any] = {
        "hashtags": content.hashtags,
        "symbols": [],
        "timestamps": [],
        "urls": content.urls,
        "user_mentions": content.mentions,
    }
    if post.at_ms % 4 == 0:  # some posts name every list, most only those with something in them
        return dump(found)
    kept = {name: entities for name, entities in found.items() if entities}
    return dump(kept) if kept else "{}"


def _article(post: Post, content: Content) -> str:
    return dump(article_of(post.id)) if content.article else "null"
