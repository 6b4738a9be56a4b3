"""The three formats of a user: profile, author of a post, member of a follow list."""

from dataclasses import dataclass
from json import JSONEncoder
from typing import Any

from mistnet.sim.clock import DAY_MS, Draw, SimCache, iso_date, legacy_date, mix, to_ms
from mistnet.sim.language import short_link, shown_link
from mistnet.sim.people import Person
from mistnet.sim.world import World

KEPT_AUTHORS = 20_000
NAMES = (
    "Ada 🪙",
    "Bruno",
    "千晴",
    "Дмитрий",
    "إيليف",
    "<b>Farid</b>",
    "Greta O'Hara",
    'Hana "H"',
    "Imani & Co",
    "João",
    "\u200bKenji",
    "林",
)
BIOS = (
    "Collector of small things.\nOpinions are borrowed.",
    "古銭と切手。無言フォロー失礼します🙇",
    "Prices, maps & birds | DM for trades",
    "",
    "هاوي عملات",
    "Official updates, monitored 6am to 10pm",
)
PLACES = ("", "Köln", "台北市", "Lagos, Nigeria", "she/her 🌍", "Pale Blue Dot")
SITES = ("https://example.com/shop", "http://example.org", None, None, None)
LABEL = {
    "label": {
        "badge": {"url": "https://pbs.twimg.com/profile_images/1285655593592791040/Badge_bigger.jpg"},
        "description": "Example House",
        "url": {"url": "https://twitter.com/ExampleHouse", "url_type": "DeepLink"},
        "user_label_type": "BusinessLabel",
        "user_label_display_type": "Badge",
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """The constant part of a profile."""

    name: str
    bio: str
    place: str
    site: str | None
    short_site: str
    picture: str
    banner: str
    verified: bool
    verified_type: str | None
    labelled: bool
    can_dm: bool
    automated_by: str | None
    favourites: int
    lost_posts: int  # counted on the profile, but never returned


dump = JSONEncoder(separators=(",", ":")).encode  # compact and in ASCII, as upstream


class Users:
    def __init__(self, world: World) -> None:
        self._world = world
        self._faces: SimCache[int, Face] = SimCache(KEPT_AUTHORS)
        self._authors: SimCache[tuple[int, int, str], bytes] = SimCache(KEPT_AUTHORS)

    def face(self, person: Person) -> Face:
        if known := self._faces.get(person.index):
            return known
        luck = mix(self._world.seed, Draw.PROFILE, person.index)
        picture_id = 1_000_000_000_000_000_000 + luck % 900_000_000_000_000_000
        face = Face(
            name=NAMES[luck % len(NAMES)],
            bio=BIOS[(luck >> 8) % len(BIOS)],
            place=PLACES[(luck >> 16) % len(PLACES)],
            site=SITES[(luck >> 24) % len(SITES)],
            short_site=short_link(luck),
            picture=f"https://pbs.twimg.com/profile_images/{picture_id}/Face{person.index}_normal.jpg",
            banner=f"https://pbs.twimg.com/profile_banners/{person.id}/{picture_id % 10**10}" if luck >> 32 & 3 else "",
            verified=bool(luck >> 34 & 1),
            verified_type=(None, None, None, "Business", "Government")[(luck >> 35) % 5],
            labelled=(luck >> 40) % 12 == 0,
            can_dm=bool(luck >> 44 & 1),
            automated_by="ExampleHouse" if (luck >> 45) % 20 == 0 else None,
            favourites=(luck >> 20) % 50_000,
            lost_posts=1 + (luck >> 50) % (person.posts // 10 + 3),
        )
        return self._faces.put(person.index, face)

    def author(self, index: int, now_ms: int) -> bytes:
        """The author in a post. The counts change once a day."""
        person = self._world.people[index]
        # The handle too, because a rename changes the author at once.
        key = index, now_ms // DAY_MS, person.handle_at(now_ms)
        found = self._authors.get(key)
        if found is None:
            found = self._authors.put(key, dump(self._author(person, *key[1:])).encode())
        return found

    def profile(self, person: Person, now_ms: int) -> bytes:
        face, counts = self.face(person), self._counts(person, now_ms)
        return dump(
            {
                "id": str(person.id),
                "name": face.name,
                "userName": person.handle_at(now_ms),
                "location": face.place,
                "url": face.short_site if face.site else None,
                "description": face.bio,
                "entities": {"description": {}, "url": _site_entities(face)},
                "protected": person.state_at(now_ms) == "protected",
                "isVerified": False,
                "isBlueVerified": face.verified,
                "verifiedType": face.verified_type,
                "followers": counts["followers"],
                "following": counts["following"],
                "favouritesCount": face.favourites,
                "statusesCount": counts["statuses"],
                "mediaCount": counts["media"],
                "createdAt": iso_date(person.created_ms),
                "coverPicture": face.banner,
                "profilePicture": face.picture,
                "canDm": face.can_dm,
                "affiliatesHighlightedLabel": LABEL if face.labelled else {},
                "isAutomated": face.automated_by is not None,
                "automatedBy": face.automated_by,
                "pinnedTweetIds": self._pinned(person, now_ms),
            }
        ).encode()

    def unavailable(self, person: Person, now_ms: int) -> bytes:
        """An unavailable user, as documented."""
        reason = str(person.state_at(now_ms))
        return dump(
            {
                "id": str(person.id),
                "userName": person.handle_at(now_ms),
                "name": "",
                "unavailable": True,
                "unavailableReason": reason,
                "message": f"User is {reason}",
            }
        ).encode()

    def member(self, index: int, now_ms: int, *, iso: bool) -> bytes:
        """A member of a follow list: snake_case. Both date formats occur upstream, so each list uses one."""
        person = self._world.people[index]
        face, counts, handle = self.face(person), self._counts(person, now_ms), person.handle_at(now_ms)
        member: dict[str, Any] = {
            "id": str(person.id),
            "name": face.name,
            "screen_name": handle,
            "userName": handle,
            "location": face.place,
            "url": face.short_site if face.site else None,
            "description": face.bio,
            "email": None,
            "protected": person.state_at(now_ms) == "protected",
            "verified": False,
            "followers_count": counts["followers"],
            "following_count": counts["following"],
            "friends_count": counts["following"],
            "favourites_count": face.favourites,
            "statuses_count": counts["statuses"],
            "media_tweets_count": counts["media"],
            "created_at": iso_date(person.created_ms) if iso else legacy_date(person.created_ms),
            "profile_banner_url": face.banner or None,
            "profile_image_url_https": face.picture,
            "can_dm": face.can_dm,
        }
        # Not every member has this field upstream.
        if index % 3 == 0:
            member["isBlueVerified"] = face.verified
        return dump(member).encode()

    def _author(self, person: Person, day: int, handle: str) -> dict[str, Any]:
        face, counts = self.face(person), self._counts(person, day * DAY_MS)
        bio_entities: dict[str, Any] = {"description": {}}
        if face.site:
            bio_entities["url"] = _site_entities(face)
        return {
            "type": "user",
            "userName": handle,
            "url": f"https://x.com/{handle}",
            "twitterUrl": f"https://twitter.com/{handle}",
            "id": str(person.id),
            "name": face.name,
            "isVerified": False,
            "isBlueVerified": face.verified,
            "verifiedType": face.verified_type,
            "profilePicture": face.picture,
            "coverPicture": face.banner,
            "description": "",
            "location": face.place,
            "followers": counts["followers"],
            "following": counts["following"],
            "status": "",
            "canDm": face.can_dm,
            "canMediaTag": True,
            "createdAt": legacy_date(person.created_ms),
            "entities": {"description": {"urls": []}, "url": {}},
            "fastFollowersCount": 0,
            "favouritesCount": face.favourites,
            "hasCustomTimelines": True,
            "isTranslator": False,
            "mediaCount": counts["media"],
            "statusesCount": counts["statuses"],
            "withheldInCountries": [],
            "affiliatesHighlightedLabel": LABEL if face.labelled else {},
            "possiblySensitive": False,
            "pinnedTweetIds": self._pinned(person, day * DAY_MS),
            "profile_bio": {"description": face.bio, "entities": bio_entities},
            "isAutomated": face.automated_by is not None,
            "automatedBy": face.automated_by,
        }

    def _counts(self, person: Person, now_ms: int) -> dict[str, int]:
        posts = self._world.timeline(person.index, now_ms).until(now_ms)
        followers, following = self._world.follows.counts(person.index, now_ms)
        return {
            "followers": followers,
            "following": following,
            "statuses": posts + self.face(person).lost_posts,
            "media": posts // 5,
        }

    def _pinned(self, person: Person, now_ms: int) -> list[str]:
        timeline = self._world.timeline(person.index, to_ms(self._world.start_at))
        if person.index % 2 or not timeline.until(now_ms):
            return []
        return [str(timeline.ids[0])]


def _site_entities(face: Face) -> dict[str, Any]:
    if face.site is None:
        return {}
    where = {
        "display_url": shown_link(face.site),
        "expanded_url": face.site,
        "indices": [0, 23],
        "url": face.short_site,
    }
    return {"urls": [where]}
