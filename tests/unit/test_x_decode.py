"""What upstream sends becomes users and posts, with nothing lost and no item spoilt by another."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistnet.governor.errors import IllegiblePayload
from mistnet.shops.links.mentions import examine
from mistnet.social.model import Detail, Post, User
from mistnet.sources.x.decode import gather_posts, gather_users, moment, read_user
from tests.examples import count_examples

AUTHOR = {
    "type": "user",
    "userName": "ann",
    "id": "11",
    "name": "Ann",
    "description": "",
    "profile_bio": {"description": "rings birds"},
    "createdAt": "Tue Dec 10 00:04:11 +0000 2013",
    "followers": 5,
    "following": 6,
    "statusesCount": 7,
}
POST: dict[str, Any] = {
    "type": "tweet",
    "id": "2018116021341540824",
    "text": "hello",
    "createdAt": "Fri Jul 31 22:22:43 +0000 2026",
    "author": AUTHOR,
    "likeCount": 3,
    "inReplyToId": None,
    "conversationId": "2018116021341540824",
    "quoted_tweet": None,
    "retweeted_tweet": None,
    "something_new": {"kept": "in raw"},
}


def raw(payload: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(payload).encode())


def only(payload: object) -> Post:
    gathered, own = gather_posts([raw(payload)], "test")
    assert gathered.unreadable == []
    return gathered.posts[own[0]]


def test_a_post_and_its_author_are_read() -> None:
    gathered, own = gather_posts([raw(POST)], "test")
    post, author = gathered.posts[own[0]], gathered.users[next(iter(gathered.users))]
    assert (post.id, post.author_id, post.text) == (2018116021341540824, 11, "hello")
    assert post.created_at == datetime(2026, 7, 31, 22, 22, 43, tzinfo=UTC)
    assert (post.in_reply_to_id, post.metrics.likes, post.metrics.views) == (None, 3, None)
    assert (author.handle, author.bio, author.followers_count, author.detail) == ("ann", "rings birds", 5, "author")
    assert json.loads(post.raw) == POST


def test_a_quoted_reply_brings_its_original_and_its_author() -> None:
    original = {**POST, "id": "7", "text": "the original", "author": {**AUTHOR, "id": "12", "userName": "bob"}}
    gathered, own = gather_posts([raw({**POST, "quoted_tweet": original})], "test")
    assert own == [2018116021341540824]
    assert sorted(gathered.posts) == [7, 2018116021341540824]
    assert sorted(gathered.users) == [11, 12]
    quoted = gathered.posts[own[0]].quoted
    assert quoted
    assert (quoted.id, quoted.text, quoted.author_handle) == (7, "the original", "bob")


def test_a_mention_at_the_start_is_no_reply() -> None:
    post = only({**POST, "isReply": False, "inReplyToId": None, "inReplyToUserId": "99"})
    assert (post.in_reply_to_id, post.in_reply_to_user_id) == (None, 99)


def test_a_text_beyond_all_limits_stays_whole_and_its_clean_form_is_cut() -> None:
    text = "x\n" * 15_000 + " \n\t end"
    post = only({**POST, "text": text})
    assert post.text == text
    assert post.one_line.endswith("x x end")
    assert post.text_clean == ("x " * 12_500)
    assert only({**POST, "text": "a \n b"}).text_clean == "a b"


def test_one_bad_post_spoils_nothing_but_itself() -> None:
    bad: list[object] = [
        {**POST, "id": None},
        {**POST, "id": "abc"},
        {**POST, "id": str(2**63)},
        {**POST, "createdAt": "yesterday"},
        {**POST, "author": None},
        {**POST, "text": 5},
        {**POST, "quoted_tweet": "gone"},
        17,
        None,
    ]
    gathered, own = gather_posts([raw(each) for each in [*bad, {**POST, "id": "5"}]], "search")
    assert own == [5]
    assert len(gathered.unreadable) == len(bad)
    assert [json.loads(each.payload) for each in gathered.unreadable] == bad
    assert all(each.problem and each.endpoint == "search" for each in gathered.unreadable)


def test_the_snake_case_users_of_follower_lists_are_read() -> None:
    listed = {
        "id": "42",
        "screen_name": "carl",
        "followers_count": 1,
        "friends_count": 2,
        "statuses_count": 3,
        "media_tweets_count": 4,
        "favourites_count": 5,
        "created_at": "2006-03-21T20:50:14.000000Z",
        "profile_image_url_https": "https://example.org/a.jpg",
        "verified": True,
    }
    user = gather_users([raw(listed)], "followers", Detail.LISTED).users[next(iter([42]))]  # type: ignore[index]
    assert (user.handle, user.followers_count, user.following_count, user.posts_count) == ("carl", 1, 2, 3)
    assert (user.avatar_url, user.verified) == ("https://example.org/a.jpg", True)
    assert user.created_at == datetime(2006, 3, 21, 20, 50, 14, tzinfo=UTC)


def test_an_unavailable_user_says_why() -> None:
    user = read_user(
        json.dumps({"id": "9", "unavailable": True, "unavailableReason": "suspended"}).encode(), Detail.PROFILE
    )
    assert user.unavailable_reason == "suspended"


@pytest.mark.parametrize("text", ["", "yesterday", "Fri Foo 31 22:22:43 +0000 2026", "Fri Jul 31 22:22:43 +0100 2026"])
def test_what_is_no_time_is_said_to_be_none(text: str) -> None:
    with pytest.raises(IllegiblePayload):
        moment(text)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=count_examples(100))
@given(
    st.dictionaries(st.sampled_from([*POST, "entities", "extendedEntities", "inReplyToUserId"]), anything, max_size=4)
)
def test_no_payload_crashes_the_reader_or_loses_its_neighbour(strange: dict[str, object]) -> None:
    gathered, own = gather_posts([raw({**POST, **strange}), raw({**POST, "id": "5"})], "fuzz")
    assert 5 in own
    assert len(own) + len(gathered.unreadable) == (1 if own == [5] and not gathered.unreadable else 2)


def corpus() -> Iterator[tuple[str, Any]]:
    folder = os.environ.get("MISTNET_TEST_CORPORA")
    if not folder:
        pytest.skip("corpora: MISTNET_TEST_CORPORA is not set")
    for path in sorted((Path(folder) / "twitterapi").glob("recorded_*.json")):
        yield path.name, json.loads(path.read_text())


def posts_in(found: Any) -> Iterator[dict[str, Any]]:
    """Every complete post anywhere in a recording."""
    if isinstance(found, dict):
        if found.get("id") and "text" in found and (found.get("author") or {}).get("id"):
            yield found
        for value in found.values():
            yield from posts_in(value)
    elif isinstance(found, list):
        for value in found:
            yield from posts_in(value)


def test_every_recorded_post_is_read_with_nothing_lost() -> None:
    count = 0
    for name, found in corpus():
        for payload in posts_in(found):
            gathered, own = gather_posts([raw(payload)], name)
            assert gathered.unreadable == [], name
            _same(gathered.posts[own[0]], payload)
            count += 1
    assert count >= 10


def test_only_addresses_of_the_web_are_kept_as_links_and_pictures() -> None:
    hostile = "javascript:alert(1)"
    film = {"variants": [{"url": hostile}, {"url": "https://v.example/1.mp4"}]}
    medium = {"type": "video", "media_url_https": hostile, "url": hostile, "video_info": film}
    links = [{"url": hostile, "expanded_url": hostile}, {"url": "https://t.co/a", "expanded_url": hostile}]
    links += [{"url": hostile, "expanded_url": "HTTPS://shop.example/a"}]
    post = only(
        {**POST, "url": hostile, "extendedEntities": {"media": [medium]}, "entities": {"urls": links}},
    )
    assert post.url is None
    assert [(each.url, each.shown_as, each.variants) for each in post.media] == [
        (None, None, ("https://v.example/1.mp4",))
    ]
    assert [(each.url, each.expanded_url) for each in post.links] == [
        ("https://t.co/a", None),
        ("HTTPS://shop.example/a", "HTTPS://shop.example/a"),
    ]
    shown = {**AUTHOR, "url": hostile, "profilePicture": hostile, "coverPicture": hostile}
    user = read_user(json.dumps(shown).encode(), Detail.PROFILE)
    assert (user.website, user.avatar_url, user.banner_url) == ("", None, None)
    assert hostile.encode() in user.raw


def test_the_recorded_profile_is_read_with_nothing_lost() -> None:
    profiles = [found["data"] for name, found in corpus() if name.startswith("recorded_user_info")]
    for payload in profiles:
        user: User = read_user(json.dumps(payload).encode(), Detail.PROFILE)
        assert (str(user.id), user.handle, user.name) == (payload["id"], payload["userName"], payload["name"])
        assert (user.bio, user.website, user.location) == (payload["description"], payload["url"], payload["location"])
        assert (user.followers_count, user.posts_count) == (payload["followers"], payload["statusesCount"])
        assert user.protected == payload["protected"]
    assert profiles


def _same(post: Post, payload: dict[str, Any]) -> None:
    assert str(post.id) == payload["id"]
    assert post.text == payload["text"]
    assert json.loads(post.raw) == payload
    assert post.created_at == datetime.strptime(payload["createdAt"], "%a %b %d %H:%M:%S %z %Y")
    for ours, theirs in (("likes", "likeCount"), ("replies", "replyCount"), ("reposts", "retweetCount")):
        assert getattr(post.metrics, ours) == payload.get(theirs)
    for ours, theirs in (("in_reply_to_id", "inReplyToId"), ("conversation_id", "conversationId")):
        value = getattr(post, ours)
        assert (str(value) if value else None) == payload.get(theirs)
    media = (payload.get("extendedEntities") or {}).get("media") or []
    assert [each.url for each in post.media] == [each.get("media_url_https") for each in media]
    assert [each.shown_as for each in post.media] == [each.get("url") for each in media]
    assert not {each.shown_as for each in post.media} & {mention.url for mention in examine(post).mentions}
    urls = (payload.get("entities") or {}).get("urls") or []
    assert [each.expanded_url for each in post.links] == [each.get("expanded_url") for each in urls]
    for ours, theirs in (("quoted", "quoted_tweet"), ("reposted", "retweeted_tweet")):
        inner = payload.get(theirs)
        reference = getattr(post, ours)
        assert (str(reference.id) if reference else None) == (inner["id"] if inner else None)
