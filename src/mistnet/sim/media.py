"""Photos, videos, animated pictures and link cards, as posts carry them."""

from base64 import b64encode
from typing import Any

PREFIX = {"photo": "3", "video": "13", "animated_gif": "16"}
RATES = ((288_000, "480x270"), (832_000, "640x360"), (2_176_000, "1280x720"))


def media_of(what: str, post_id: int, handle: str, short: str, indices: list[int], luck: int) -> list[dict[str, Any]]:
    kind, count = ("photo", 2 + luck % 3) if what == "photos" else (what, 1)
    return [_medium(kind, post_id, handle, short, indices, luck + place) for place in range(count)]


def _medium(kind: str, post_id: int, handle: str, short: str, indices: list[int], luck: int) -> dict[str, Any]:
    media_id = post_id - 4_194_304 * (1 + luck % 5000)
    key = f"{PREFIX[kind]}_{media_id}"
    width, height = (1200, 675) if luck & 1 else (900, 1200)
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
        "original_info": {"focus_rects": _focus(width, height), "height": height, "width": width},
        "sizes": {"large": {"h": height, "w": width}},
        "type": kind,
        "url": short,
    }
    if kind == "photo" and luck % 3 == 0:
        medium["ext_alt_text"] = "A silver coin on a map, next to a cup of tea 🍵"
    if kind != "photo":
        medium["original_info"]["focus_rects"] = []
        medium["video_info"] = _video(kind, media_id, luck)
    return medium


def _focus(width: int, height: int) -> list[dict[str, int]]:
    side = min(width, height)
    return [{"h": side, "w": side, "x": 0, "y": 0}, {"h": height, "w": width, "x": 0, "y": 0}]


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
    """Lookups by id wrap the card, and sometimes only name it."""
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
