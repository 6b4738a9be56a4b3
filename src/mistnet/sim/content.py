"""The content of a post: its text with links, mentions and media."""

from base64 import b64encode
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mistnet.sim.clock import Draw, chance, mix, time_of
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
from mistnet.sim.people import Person
from mistnet.sim.posts import DraftKind
from mistnet.sim.users import Users
from mistnet.sim.world import SimPost, World

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
