"""What Threads sends becomes users and posts, with nothing lost and no token kept."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mistnet.governor.errors import UNREADABLE, BadRequest, IllegiblePayload, SourceRefused
from mistnet.kit.errors import MistnetError
from mistnet.social.feeds import read_feed_handle
from mistnet.social.model import Detail, Post
from mistnet.sources.threads.asking import error_of, problem_of, read_envelope, scrub
from mistnet.sources.threads.decode import (
    gather_posts,
    moment,
    read_profile,
    user_id_of,
)
from tests.examples import count_examples

POST: dict[str, Any] = {
    "id": "17889615691921648",
    "media_product_type": "THREADS",
    "media_type": "TEXT_POST",
    "permalink": "https://www.threads.com/@ann/post/abc",
    "username": "Ann.Shop",
    "text": "look",
    "timestamp": "2024-09-12T23:17:39+0000",
    "has_replies": True,
    "is_verified": True,
    "something_new": {"kept": "in raw"},
}
TOKEN = "THAA|secret/token+value"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def raw(payload: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(payload).encode())


def only(payload: object, **about: Any) -> Post:
    gathered, own, _ = gather_posts([raw(payload)], "test", **about)
    assert gathered.unreadable == []
    return gathered.posts[own[0]]


def test_a_post_and_its_author_are_read() -> None:
    gathered, own, answered = gather_posts([raw(POST)], "test")
    post, author = gathered.posts[own[0]], gathered.users[user_id_of("ann.shop")]
    assert (post.platform, post.id, post.text) == ("threads", 17889615691921648, "look")
    assert post.created_at == datetime(2024, 9, 12, 23, 17, 39, tzinfo=UTC)
    assert (post.author_id, post.conversation_id, post.in_reply_to_id) == (author.id, post.id, None)
    assert (author.handle, author.detail, author.verified) == ("Ann.Shop", Detail.AUTHOR, True)
    assert answered == {post.id}
    assert json.loads(post.raw) == POST


def test_a_reply_knows_its_root_and_whom_it_answers() -> None:
    post = only({**POST, "is_reply": True, "root_post": {"id": "5"}, "replied_to": {"id": 6}})
    assert (post.conversation_id, post.in_reply_to_id) == (5, 6)


def test_links_beside_the_text_are_kept_with_their_place() -> None:
    attached = {"plaintext": "buy https://shopee.tw/product/1/2 now", "link_attachment_url": "https://a.example/x"}
    post = only({**POST, "link_attachment_url": "https://b.example/", "text_attachment": attached})
    assert [(link.place, link.url) for link in post.links] == [
        ("attachment", "https://b.example/"),
        ("text_attachment", "https://a.example/x"),
        ("text_attachment", "https://shopee.tw/product/1/2"),
    ]


def test_a_quoted_post_is_an_id_or_a_whole_post() -> None:
    named_alone = only({**POST, "quoted_post": {"id": "7"}}).quoted
    assert named_alone
    assert (named_alone.id, named_alone.text) == (7, None)
    whole = {**POST, "id": "7", "username": "bob", "text": "the original"}
    gathered, own, _ = gather_posts([raw({**POST, "quoted_post": whole})], "test")
    quoted = gathered.posts[own[0]].quoted
    assert quoted
    assert (quoted.id, quoted.text, quoted.author_handle) == (7, "the original", "bob")
    assert (sorted(gathered.posts), gathered.posts[quoted.id].nested) == ([7, 17889615691921648], True)


def test_pictures_films_and_albums_are_media() -> None:
    children = {"data": [{"id": "1", "media_type": "IMAGE", "media_url": "https://c/1"}, {"id": "2"}]}
    album = only({**POST, "media_type": "CAROUSEL_ALBUM", "children": children})
    assert [(each.kind, each.key) for each in album.media] == [("photo", "1"), ("unknown", "2")]
    film = only({**POST, "media_type": "VIDEO", "media_url": "https://c/v", "gif_url": "https://c/g", "text": None})
    assert ([each.kind for each in film.media], film.text) == (["video", "animated_gif"], "")


def test_only_addresses_of_the_web_are_kept_as_links_and_pictures() -> None:
    hostile = "javascript:alert(1)"
    children = {"data": [{"id": "1", "media_type": "IMAGE", "media_url": hostile}]}
    attached = {"plaintext": "", "link_attachment_url": hostile}
    told = {**POST, "permalink": hostile, "profile_picture_url": hostile, "gif_url": hostile, "children": children}
    gathered, own, _ = gather_posts(
        [raw({**told, "link_attachment_url": hostile, "text_attachment": attached})], "test"
    )
    post = gathered.posts[own[0]]
    assert (post.url, post.links, [each.url for each in post.media]) == (None, (), [None])
    assert gathered.users[post.author_id].avatar_url is None
    assert read_profile(b'{"username":"ann","threads_profile_picture_url":"javascript:alert(1)"}').avatar_url is None


def test_whose_posts_were_asked_for_counts_where_none_is_named() -> None:
    bare = {name: value for name, value in POST.items() if name != "username"}
    assert only(bare, author="ann").author_id == user_id_of("ann")
    gathered, own, _ = gather_posts([raw(bare), raw(POST)], "test")
    assert (own, gathered.unreadable[0].post_id) == ([17889615691921648], 17889615691921648)


def test_profiles_come_in_two_shapes() -> None:
    own = read_profile(b'{"id":"1","username":"ann","threads_biography":"rings","is_verified":false}')
    other = read_profile(b'{"username":"Bob","biography":"reads","follower_count":5,"name":"B"}')
    assert (own.id, own.bio, own.detail) == (user_id_of("ann"), "rings", Detail.PROFILE)
    assert (other.id, other.bio, other.followers_count) == (user_id_of("bob"), "reads", 5)
    with pytest.raises(IllegiblePayload):
        read_profile(b'{"id":"1"}')


def test_ids_of_users_are_stable_negative_and_the_same_for_any_case() -> None:
    assert user_id_of("Meta") == user_id_of("meta") == -4_219_580_172_628_925_313
    ids = {user_id_of(f"user{n}") for n in range(10_000)}
    assert len(ids) == 10_000
    assert all(-(2**62) <= each < 0 for each in ids)


@pytest.mark.parametrize("written", ["2024-09-12T23:17:39", "yesterday", "", "2024-13-01T00:00:00+0000"])
def test_a_time_that_is_none_is_told(written: str) -> None:
    with pytest.raises(IllegiblePayload):
        moment(written)


@pytest.mark.parametrize(
    "written",
    [
        "ann",
        "@ann",
        " Ann.b_1 ",
        "https://www.threads.com/@ann",
        "threads.net/@ann/replies",
        "http://threads.com/@ann/",
    ],
)
def test_handles_are_read_as_people_write_them(written: str) -> None:
    assert read_feed_handle(written).lower().startswith("ann")


@pytest.mark.parametrize(
    "written",
    ["", "a b", "a" * 31, ".ann", "ann.", "a..b", "https://x.com/ann", "threads.com/ann", "threads.com/@a/p/1"],
)
def test_what_names_no_account_of_threads_is_refused_with_the_way_to_write_it(written: str) -> None:
    with pytest.raises(MistnetError, match=r"https://www\.threads\.com/@name"):
        read_feed_handle(written)


FORMS = (
    "https://graph.threads.net/v1.0/me?access_token=THAA%7Csecret%2Ftoken%2Bvalue&after=x",
    "https://graph.threads.net/v1.0/me?access_token=THAA|secret/token+value",
    r"https:\/\/graph.threads.net\/me?access_token=THAA|secret\/token+value&limit=5",
    "Cannot parse access token THAA|secret/token+value",
    "someone=else&access_token=another-token-entirely&x=1",
    "redirect=https%3A%2F%2Fgraph.threads.net%3Faccess_token%3DTHAA%257Csecret%26x%3D1",
)


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_token_survives(form: str) -> None:
    clean = scrub(form.encode(), [TOKEN])
    for part in (b"secret", b"another-token"):
        assert part not in clean
    assert b"***" in clean


def test_a_scrubbed_page_is_still_a_page() -> None:
    page = {
        "data": [POST],
        "paging": {"cursors": {"after": "abc"}, "next": f"https://g/?access_token={TOKEN}&after=abc"},
    }
    clean = scrub(json.dumps(page).encode(), [TOKEN])
    assert json.loads(clean)["data"] == [POST]
    assert json.loads(clean)["paging"]["cursors"]["after"] == "abc"


@settings(max_examples=count_examples(100))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*POST, "quoted_post", "children", "x"]), inner)
        ),
        max_leaves=15,
    )
)
def test_whatever_comes_is_read_or_set_aside(payload: object) -> None:
    gathered, own, _ = gather_posts([raw(payload), raw(POST)], "test")
    assert len(own) + len(gathered.unreadable) >= 1
    assert 17889615691921648 in own


@settings(max_examples=count_examples(100))
@given(st.sampled_from(sorted(POST)), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()))
def test_one_bad_field_spoils_one_post_alone(field: str, value: object) -> None:
    gathered, own, _ = gather_posts([raw({**POST, field: value}), raw({**POST, "id": "99"})], "test")
    assert 99 in own
    assert len(own) + len(gathered.unreadable) == 2 or field == "id"


def fixtures() -> list[Any]:
    folder = Path(os.environ.get("MISTNET_TEST_CORPORA", "/nowhere")) / "threads"
    found = folder / "threads_payload_fixtures.dev.json"
    return json.loads(found.read_bytes()) if found.is_file() else []


@pytest.mark.skipif(not fixtures(), reason="corpora: MISTNET_TEST_CORPORA names no folder with published payloads")
@pytest.mark.parametrize("fixture", fixtures(), ids=lambda each: each["name"])
def test_published_payloads_are_understood(fixture: Any) -> None:
    payload = fixture["payload"]
    body = json.dumps(payload).encode()
    found = read_envelope(body)
    assert found is not None
    if "error" in payload or "error_message" in payload:
        problem = problem_of(found, body)
        error = error_of(found, status=400, endpoint="test", problem=problem, headers={}, now=NOW)
        said = payload.get("error", {}).get("message") or payload["error_message"]
        assert said in str(error)
        assert isinstance(error, SourceRefused if payload.get("error", {}).get("code") == 190 else BadRequest)
        return
    gathered, own, _ = gather_posts([msgspec.Raw(body)], "media")
    assert len(own) + len(gathered.unreadable) == 1
    if {"timestamp", "username"} <= payload.keys():
        assert own == [int(payload["id"])]
        assert gathered.posts[own[0]].text == payload.get("text", "")
    else:
        assert gathered.unreadable[0].payload == body


def test_a_payload_nested_without_end_is_set_aside() -> None:
    deep = b'{"id":"1","timestamp":"2024-09-12T23:17:39+0000","username":"a","quoted_post":' * 3000 + b"1" + b"}" * 3000
    gathered, own, _ = gather_posts([msgspec.Raw(deep)], "test")
    assert (own, len(gathered.unreadable)) == ([], 1)
    assert RecursionError in UNREADABLE
