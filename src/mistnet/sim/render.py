"""Posts: their text with links, mentions and media, and their JSON, which is rendered once.

Its author and the quoted or repeated post are inserted later.
"""

from base64 import b64encode
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import IntEnum
from json.encoder import encode_basestring_ascii
from random import Random
from typing import Any

from mistnet.sim.clock import DAY_MS, HOUR_MS, Draw, SimCache, chance, legacy_date, mix, time_of
from mistnet.sim.language import (
    HASHTAGS,
    HOSTILE_TEXTS,
    OTHER_LINKS,
    SHOP_LINKS,
    UNSPACED,
    sentence,
    short_link,
    shown_link,
)
from mistnet.sim.people import FIRST_POST_MS, Person
from mistnet.sim.posts import KIND, DraftKind
from mistnet.sim.users import Users, dump
from mistnet.sim.world import PostFate, SimPost, World

PREFIX = {"photo": "3", "video": "13", "animated_gif": "16"}
MEDIA = ((0.11, "photo"), (0.14, "photos"), (0.18, "video"), (0.2, "animated_gif"))
RATES = ((288_000, "480x270"), (832_000, "640x360"), (2_176_000, "1280x720"))


def _medium(kind: str, post_id: int, handle: str, short: str, indices: list[int], luck: int) -> dict[str, Any]:
    media_id = post_id - 4_194_304 * (1 + luck % 5000)
    key = f"{PREFIX[kind]}_{media_id}"
    width, height = (1200, 675) if luck & 1 else (900, 1200)
    side = min(width, height)
    focus = [{"h": side, "w": side, "x": 0, "y": 0}, {"h": height, "w": width, "x": 0, "y": 0}]
    opaque = b64encode(f"ApiMedia:{media_id}".encode()).decode()
    medium: dict[str, Any] = {
        "display_url": short.replace("https://t.co/", "pic.twitter.com/"),
        "expanded_url": f"https://twitter.com/{handle}/status/{post_id}/{'photo' if kind == 'photo' else 'video'}/1",
        "ext_media_availability": {"status": "Available"},
        "features": {"large": {"faces": []}, "orig": {"faces": []}},
        "id_str": str(media_id),
        "indices": indices,
        "media_key": key,
        "media_results": {"id": opaque, "result": {"__typename": "ApiMedia", "id": opaque, "media_key": key}},
        "media_url_https": f"https://pbs.twimg.com/media/H{media_id % 10**12:X}.jpg",
        "original_info": {"focus_rects": focus if kind == "photo" else [], "height": height, "width": width},
        "sizes": {"large": {"h": height, "w": width}},
        "type": kind,
        "url": short,
    }
    if kind == "photo" and luck % 3 == 0:
        medium["ext_alt_text"] = "A silver coin on a map, next to a cup of tea 🍵"
    if kind != "photo":
        medium["video_info"] = _video(kind, media_id, luck)
    return medium


def _video(kind: str, media_id: int, luck: int) -> dict[str, Any]:
    if kind == "animated_gif":
        variant = {
            "bitrate": 0,
            "content_type": "video/mp4",
            "url": f"https://video.twimg.com/tweet_video/{media_id}.mp4",
        }
        return {"aspect_ratio": [16, 9], "variants": [variant]}
    base = f"https://video.twimg.com/amplify_video/{media_id}"
    stream = {"content_type": "application/x-mpegURL", "url": f"{base}/pl/list.m3u8?tag=14"}
    files = [
        {"bitrate": rate, "content_type": "video/mp4", "url": f"{base}/vid/avc1/{size}/file.mp4?tag=14"}
        for rate, size in RATES
    ]
    return {"aspect_ratio": [16, 9], "duration_millis": 5_000 + luck % 160_000, "variants": [stream, *files]}


def card_of(url: str, *, by_id: bool, luck: int) -> dict[str, Any]:
    """Lookups by id wrap the card, and sometimes only contain its name."""
    if by_id and luck % 6 == 0:
        return {"rest_id": f"card://{luck % 10**18}"}
    texts = {
        "title": "Why silver moved",
        "description": "A short look at a long year",
        "card_url": url,
        "domain": "example.org",
    }
    values = [{"key": key, "value": {"string_value": text}} for key, text in texts.items()]
    card = {"name": "summary_large_image", "url": url, "binding_values": values}
    return {"legacy": card} if by_id else card


def article_of(post_id: int) -> dict[str, str]:
    return {
        "title": "On patience",
        "preview_text": "What a market teaches in thirty years of Sundays…",
        "cover_media_img_url": f"https://pbs.twimg.com/media/A{post_id % 10**12:X}.jpg",
    }


SHORT_FORM = 270  # the display range of a long post


@dataclass(slots=True)
class Content:
    parts: list[str] = field(default_factory=list)
    length: int = 0
    language: str = "en"
    hashtags: list[dict[str, Any]] = field(default_factory=list)
    urls: list[dict[str, Any]] = field(default_factory=list)
    mentions: list[dict[str, Any]] = field(default_factory=list)
    media: list[dict[str, Any]] = field(default_factory=list)
    shown_from: int = 0
    shown_to: int = 0
    greeted: Person | None = None
    greeted_as: str = ""
    card_url: str | None = None
    article: bool = False

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def say(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def mention(self, user_id: int, handle: str, name: str) -> None:
        start = self.length
        self.say(f"@{handle}")
        self.mentions.append(
            {"id_str": str(user_id), "indices": [start, self.length], "name": name, "screen_name": handle}
        )

    def hashtag(self, tag: str) -> None:
        start = self.length
        self.say(f"#{tag}")
        self.hashtags.append({"indices": [start, self.length], "text": tag})

    def link(self, short: str, expanded: str) -> None:
        start = self.length
        self.say(short)
        where = {
            "display_url": shown_link(expanded),
            "expanded_url": expanded,
            "indices": [start, self.length],
            "url": short,
        }
        self.urls.append(where)


class SimWriter:
    def __init__(self, world: World, users: Users) -> None:
        self._world, self._users = world, users

    def content(self, post: SimPost) -> Content:
        luck = mix(self._world.seed, Draw.TEXT, post.id)
        dice = chance(luck)
        content = Content(language=self._world.people[post.author].language)
        if post.parent:
            self._address(content, post.parent.user_id, post.parent.handle)
            content.shown_from = content.length
        planted = post.planted
        if planted and planted.text is not None:
            content.language = "en"
            if planted.greets is not None:
                self._greet(content, planted.greets, time_of(planted.id))
            content.say(planted.text)
            if planted.link:
                content.say(" ")
                content.link(short_link(luck), planted.link)
        else:
            self._improvise(content, post, dice, luck)
        content.shown_to = content.length if content.length <= 400 else content.shown_from + SHORT_FORM
        draw = 1.0 if planted else dice.random()
        natural = None if post.kind is DraftKind.REPLY else next((kind for most, kind in MEDIA if draw < most), None)
        if media := planted.media if planted else natural:
            handle, short = self._world.people[post.author].handle_at(post.at_ms), short_link(luck >> 3)
            content.say(" ")
            indices = [content.length, content.length + len(short)]
            content.say(short)
            kind, count = ("photo", 2 + luck % 3) if media == "photos" else (media, 1)
            content.media = [_medium(kind, post.id, handle, short, indices, luck + place) for place in range(count)]
        content.article = bool(planted and planted.article) or (post.kind is DraftKind.ORIGINAL and luck % 300 == 0)
        return content

    def _address(self, content: Content, user_id: int, handle: str) -> None:
        person = self._world.person(user_id)
        content.mention(user_id, handle, self._users.face(person).name if person else "")
        content.say(" ")

    def _greet(self, content: Content, index: int, at_ms: int) -> None:
        """A text that starts with a mention but is not a reply."""
        content.greeted = person = self._world.people[index]
        content.greeted_as = person.handle_at(at_ms)
        self._address(content, person.id, content.greeted_as)

    def _improvise(self, content: Content, post: SimPost, dice: Random, luck: int) -> None:
        if post.kind is DraftKind.ORIGINAL and luck % 90 == 0:
            self._greet(content, self._world.references.idols(post.author)[0], post.at_ms)
        if luck >> 8 & 63 == 0:
            content.language = "qme" if luck >> 14 & 1 else "und"
            content.say(HOSTILE_TEXTS[(luck >> 16) % len(HOSTILE_TEXTS)])
        else:
            # The order of draws decides what follows: a further draw here would change every text after it.
            draw, longest = dice.random(), 120 if content.language in UNSPACED else 230
            low, high = (1, 6) if draw < 0.03 else (500, 4_000) if draw > 0.995 else (15, longest)
            content.say(sentence(content.language, dice.randint(low, high), luck >> 5))
        if dice.random() < 0.15:
            content.say(" ")
            content.hashtag(dice.choice(HASHTAGS))
        if dice.random() < 0.08:
            content.say(" ")
            person = self._world.people[self._world.references.idols(post.author)[1]]
            content.mention(person.id, person.handle_at(post.at_ms), self._users.face(person).name)
        if dice.random() < 0.14:
            content.say(" ")
            content.link(short_link(luck), dice.choice(SHOP_LINKS if dice.random() < 0.6 else OTHER_LINKS))
            if dice.random() < 0.4:
                content.card_url = content.urls[-1]["url"]


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
        luck, percent = mix(self._world.seed, Draw.METRICS, counted.id), GROWTH_PERCENT[step]
        person = self._world.people[counted.author]
        peak = 20_000 // (person.index + 2) if person.star else 40
        likes = int(peak * ((luck & 0xFFFF) / 0x10000) ** 4) * percent // 100
        is_viewed = counted.at_ms >= VIEWS_SINCE_MS
        views = likes * 90 + (luck >> 20) % 60 * percent // 100 if is_viewed else "null"
        text = encode_basestring_ascii(content.text)
        conversation = self._world.root_of(post)
        head = (
            f'{{"type":"tweet","id":"{post.id}","url":"https://x.com/{handle}/status/{post.id}",'
            f'"twitterUrl":"https://twitter.com/{handle}/status/{post.id}","text":{text},"source":"Twitter for iPhone",'
            f'"retweetCount":{likes // 7},"replyCount":{likes // 11},"likeCount":{likes},'
            f'"quoteCount":{likes // 60},"viewCount":{views},"createdAt":"{legacy_date(post.at_ms)}",'
            f'"lang":"{content.language}","bookmarkCount":{likes // 20},'
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
