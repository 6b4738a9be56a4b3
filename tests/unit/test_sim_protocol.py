"""The protocol, key for key: envelopes, objects and refusals as upstream writes them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mistnet.sim.clock import SimClock
from mistnet.sim.service import Key, SimAnswer, Tier, XService
from mistnet.sim.truth import Truth
from mistnet.sim.world import World
from tests.simulated import SimVisitor

KEY = Key(name="sim-key", tier=Tier.UNLIMITED, recharge_credits=10**9)


def keys(text: str) -> set[str]:
    return set(text.split())


TWEET = keys(
    """type id url twitterUrl text source retweetCount replyCount likeCount quoteCount viewCount createdAt lang
    bookmarkCount isReply inReplyToId conversationId displayTextRange inReplyToUserId inReplyToUsername author
    extendedEntities card place entities quoted_tweet retweeted_tweet isLimitedReply article communityInfo"""
)
AUTHOR = keys(
    """type userName url twitterUrl id name isVerified isBlueVerified verifiedType profilePicture coverPicture
    description location followers following status canDm canMediaTag createdAt entities fastFollowersCount
    favouritesCount hasCustomTimelines isTranslator mediaCount statusesCount withheldInCountries
    affiliatesHighlightedLabel
    possiblySensitive pinnedTweetIds profile_bio isAutomated automatedBy"""
)
PROFILE = keys(
    """id name userName location url description entities protected isVerified isBlueVerified verifiedType followers
    following favouritesCount statusesCount mediaCount createdAt coverPicture profilePicture canDm
    affiliatesHighlightedLabel isAutomated automatedBy pinnedTweetIds"""
)
MEMBER = keys(
    """id name screen_name userName location url description email protected verified followers_count following_count
    friends_count favourites_count statuses_count media_tweets_count created_at profile_banner_url
    profile_image_url_https can_dm"""
)
MEDIUM = keys(
    """type media_url_https url expanded_url display_url id_str media_key indices sizes original_info
    ext_media_availability media_results features"""
)
PAGED = {"has_next_page", "next_cursor"}
ENVELOPES = {
    "/twitter/user/info": {"status", "msg", "data"},
    "/twitter/user/batch_info_by_ids": {"users", "status", "msg"},
    "/twitter/user/followers": {"status", "code", "msg", "followers"} | PAGED,
    "/twitter/user/followings": {"status", "code", "msg", "followings"} | PAGED,
    "/twitter/user/check_follow_relationship": {"status", "message", "data"},
    "/twitter/tweets": {"status", "code", "msg", "tweets"},
    "/twitter/tweet/advanced_search": {"tweets"} | PAGED,
    "/oapi/my/info": {"recharge_credits", "total_bonus_credits"},
}


@pytest.fixture(scope="module")
def service() -> XService:
    return XService(World(7, "tiny"), SimClock().now, keys=[KEY])


@pytest.fixture(scope="module")
def visitor(service: XService) -> SimVisitor:
    return SimVisitor(service)


async def every_post(service: XService) -> list[dict[str, Any]]:
    visitor, found = SimVisitor(service), []
    for handle in Truth(service.world).accounts(service.now()):
        for query in (f"from:{handle}", f"from:{handle} filter:nativeretweets"):
            cursor, more = "", True
            while more:
                page = await visitor.search(query, cursor)
                found += page["tweets"]
                cursor, more = page["next_cursor"], page["has_next_page"]
    return found


def planted(service: XService, **wanted: object) -> int:
    posts = service.world.stories.posts.values()
    return next(each.id for each in posts if all(getattr(each, name) == value for name, value in wanted.items()))


async def looked_up(visitor: SimVisitor, post_id: int) -> dict[str, Any]:
    page = await visitor.get("/twitter/tweets", tweet_ids=post_id)
    return dict(page["tweets"][0])


async def searched(service: XService, post_id: int) -> dict[str, Any]:
    post = service.world.post(post_id)
    assert post is not None
    handle = service.world.people[post.author].handle_at(post.at_ms)
    page = await SimVisitor(service).search(f"from:{handle} max_id:{post_id}")
    return dict(page["tweets"][0])


@pytest.mark.parametrize("path", ENVELOPES)
async def test_each_envelope_has_the_keys_of_its_endpoint(path: str, service: XService, visitor: SimVisitor) -> None:
    star, root = service.world.stars[0], service.world.stories.wide_root
    handle = star.handle_at(0)
    params: dict[str, object] = {"userIds": star.id, "tweet_ids": root, "query": f"from:{handle}"}
    params |= {"source_user_name": handle, "target_user_name": handle}
    page = await visitor.get(path, userName=handle, userId=star.id, **params)
    assert set(page) == ENVELOPES[path]
    if "status" in page:
        assert (page["status"], page.get("msg", page.get("message"))) == ("success", "success")
    if "code" in page:
        assert page["code"] == 0


async def test_each_post_has_the_keys_of_a_post(service: XService) -> None:
    posts = await every_post(service)
    assert len(posts) > 200
    for post in posts:
        nested = [post[name] for name in ("quoted_tweet", "retweeted_tweet") if post[name]]
        for each in (post, *nested):
            assert set(each) == TWEET
            assert set(each["author"]) == AUTHOR
            assert set(each["entities"]) <= {"hashtags", "urls", "user_mentions", "symbols", "timestamps"}
            assert isinstance(each["id"], str)
        for each in nested:
            assert each["quoted_tweet"] is None
            assert each["retweeted_tweet"] is None
        for medium in post["extendedEntities"].get("media", []):
            assert MEDIUM <= set(medium) <= MEDIUM | {"video_info", "ext_alt_text"}
    kinds = {medium["type"] for post in posts for medium in post["extendedEntities"].get("media", [])}
    assert kinds == {"photo", "video", "animated_gif"}
    assert any(post["quoted_tweet"] for post in posts)
    assert any(not post["entities"] for post in posts)


async def test_each_user_shape_has_its_own_keys_and_dates(service: XService, visitor: SimVisitor) -> None:
    star = service.world.stars[0]
    handle = star.handle_at(0)
    profile = (await visitor.get("/twitter/user/info", userName=handle.upper()))["data"]
    assert set(profile) == PROFILE
    assert profile["userName"] == handle
    assert profile["createdAt"].endswith(".000000Z")
    batch = await visitor.get("/twitter/user/batch_info_by_ids", userIds=f"{star.id}, {star.id}")
    assert batch["users"] == [profile]
    for side in ("followers", "followings"):
        for member in (await visitor.get(f"/twitter/user/{side}", userName=handle))[side]:
            assert set(member) - {"isBlueVerified"} == MEMBER
    post = (await visitor.search(f"from:{handle}"))["tweets"][0]
    assert post["author"]["createdAt"][-10:-5] == "+0000"
    assert post["author"]["description"] == ""


async def test_the_profile_counts_more_posts_than_search_returns(service: XService, visitor: SimVisitor) -> None:
    truth = Truth(service.world)
    for handle in truth.accounts(service.now()):
        profile = (await visitor.get("/twitter/user/info", userName=handle))["data"]
        assert profile["statusesCount"] > len(truth.search_ids(handle, service.now()))


async def test_a_lookup_wraps_the_card_and_knows_no_article(service: XService, visitor: SimVisitor) -> None:
    with_cards = [post for post in await every_post(service) if post["card"]]
    assert with_cards
    wrapped = 0
    for listed in with_cards:
        assert set(listed["card"]) == {"name", "url", "binding_values"}
        found = await looked_up(visitor, int(listed["id"]))
        assert set(found) == TWEET - {"article"}
        if "legacy" in found["card"]:
            assert found["card"]["legacy"] == listed["card"]
            wrapped += 1
        else:
            assert set(found["card"]) == {"rest_id"}
    assert wrapped
    assert (await searched(service, planted(service, article=True)))["article"]["title"]


async def test_a_post_that_starts_with_a_mention_is_no_reply(service: XService, visitor: SimVisitor) -> None:
    other = service.world.stars[1]
    post = await looked_up(visitor, planted(service, greets=other.index))
    assert post["text"].startswith(f"@{other.handle_at(0)} ")
    assert post["isReply"] is False
    assert post["inReplyToId"] is None
    assert post["inReplyToUserId"] == str(other.id)


async def test_a_quoted_reply_does_not_say_whom_it_answers(service: XService, visitor: SimVisitor) -> None:
    quote = await looked_up(visitor, planted(service, text="This."))
    quoted = quote["quoted_tweet"]
    assert quoted["isReply"] is True
    assert quoted["inReplyToId"] == str(service.world.stories.wide_root)
    assert quoted["inReplyToUserId"] is None
    assert quoted["inReplyToUsername"] is None
    outside = await looked_up(visitor, int(quoted["id"]))
    assert outside["inReplyToUserId"]
    assert outside["conversationId"] == str(service.world.stories.wide_root)
    assert (await looked_up(visitor, planted(service, text="And this.")))["quoted_tweet"] is None


async def test_a_long_post_is_whole_and_its_range_is_not(service: XService, visitor: SimVisitor) -> None:
    post = await looked_up(visitor, service.world.stories.longest)
    assert len(post["text"]) == 26_500
    assert post["displayTextRange"][1] < 300


async def test_bodies_are_ascii(service: XService, visitor: SimVisitor) -> None:
    answer = await visitor.ask("/twitter/tweet/advanced_search", query=f"from:{service.world.stars[2].handle_at(0)}")
    assert answer.body.isascii()
    assert b"\\u" in answer.body


async def raw(
    service: XService, path: str, query: str = "", key: str | None = "sim-key", method: str = "GET"
) -> SimAnswer:
    return await service.handle(method, path, query, {"x-ApI-key": key} if key else {})


@pytest.mark.parametrize(
    ("path", "query", "key", "method", "status", "body"),
    [
        ("/twitter/user/info", "userName=a", None, "GET", 403,
         {"error": "Forbidden", "message": "API key required. Please include x-api-key in your request header..."}),
        ("/twitter/user/info", "x-api-key=sim-key", None, "GET", 403,
         {"error": "Forbidden", "message": "API key required. Please include x-api-key in your request header..."}),
        ("/twitter/user/info", "", None, "OPTIONS", 401,
         {"error": "Unauthorized", "message": "Missing API key.Please add x-api-key in header"}),
        ("/twitter/user/info", "userName=a", "wrong", "GET", 401,
         {"error": "Unauthorized", "message": "API key is invalid"}),
        ("/twitter/user/info", "", "sim-key", "GET", 400, {"detail": "userName is required"}),
        ("/twitter/user/batch_info_by_ids", "", "sim-key", "GET", 400, {"detail": "userIds is required"}),
        ("/twitter/tweets", "tweetIds=1", "sim-key", "GET", 400, {"detail": "tweet_ids is required"}),
        ("/twitter/tweet/advanced_search", "q=a", "sim-key", "GET", 400, {"detail": "query is required"}),
        ("/twitter/tweet/advanced_search", "query=lang%3Aen", "sim-key", "GET", 400,
         {"detail": "query: the simulator does not know 'lang:en'"}),
        ("/twitter/nowhere", "", "sim-key", "GET", 404, {"detail": "Not Found"}),
        ("/twitter/tweets", "tweet_ids=1", "sim-key", "POST", 405, {"detail": "Method Not Allowed"}),
        ("/twitter/user/info", "userName=nobody_here", "sim-key", "GET", 200,
         {"status": "error", "msg": "user not found", "data": None}),
    ],
)  # fmt: skip
async def test_refusals_have_the_bodies_upstream_sends(
    path: str, query: str, key: str | None, method: str, status: int, body: object, service: XService
) -> None:
    answer = await raw(service, path, query, key, method)
    assert answer.status == status
    assert json.loads(answer.body) == body
    assert answer.headers["content-length"] == str(len(answer.body))


async def test_a_hidden_user_is_reported_in_each_of_three_ways() -> None:
    service = XService(World(7, "small"), SimClock().now, keys=[KEY])
    visitor, seen = SimVisitor(service), set()
    for person in service.world.people:
        if person.shown_at(0):
            continue
        body = await visitor.get("/twitter/user/info", userName=person.handle_at(0))
        if body["status"] == "error":
            seen.add("error")
        elif body["data"] is None:
            seen.add("null")
        else:
            assert body["data"]["unavailable"] is True
            seen.add("object")
    assert seen == {"error", "null", "object"}


async def test_unknown_parameters_and_strange_cursors_change_nothing(service: XService, visitor: SimVisitor) -> None:
    handle = service.world.stars[0].handle_at(0)
    plain = await visitor.search(f"from:{handle}")
    for more in ({"sinceTime": 5}, {"cursor": "!!"}, {"cursor": "DAACCgAC*"}):
        path = "/twitter/tweet/advanced_search"
        assert await visitor.get(path, query=f"from:{handle}", **more) == plain
    enormous = await visitor.search(f"from:{handle} max_id:{10**40}")
    assert enormous["tweets"] == plain["tweets"]


@pytest.fixture
def corpora() -> Path:
    folder = Path(os.environ.get("MISTNET_TEST_CORPORA", ""), "twitterapi")
    if "MISTNET_TEST_CORPORA" not in os.environ or not folder.is_dir():
        pytest.skip("corpora: MISTNET_TEST_CORPORA names no folder with recorded payloads")
    return folder


def recorded(corpora: Path, name: str) -> Any:
    return json.loads((corpora / name).read_text(encoding="utf-8"))


async def test_recorded_posts_have_the_same_keys(corpora: Path, service: XService, visitor: SimVisitor) -> None:
    photo = await searched(service, planted(service, media="photo"))
    quote = await searched(service, planted(service, text="This."))
    for ours, theirs in (
        (photo, recorded(corpora, "recorded_tweet_photo.json")),
        (quote, recorded(corpora, "recorded_tweet_quote_of_reply.json")),
        (quote["quoted_tweet"], recorded(corpora, "recorded_tweet_quote_of_reply.json")["quoted_tweet"]),
    ):
        assert list(ours) == [*theirs, "communityInfo"]
        assert list(ours["author"]) == list(theirs["author"])
        for name, value in theirs.items():
            assert ours[name] is None or value is None or type(ours[name]) is type(value), name
    theirs = recorded(corpora, "recorded_tweet_photo.json")["extendedEntities"]["media"][0]
    ours = photo["extendedEntities"]["media"][0]
    assert set(ours) - {"ext_alt_text"} == set(theirs)
    assert {name: type(value) for name, value in theirs.items()}.items() <= {
        n: type(v) for n, v in ours.items()
    }.items()


async def test_recorded_profiles_and_pages_have_the_same_keys(
    corpora: Path, service: XService, visitor: SimVisitor
) -> None:
    theirs = recorded(corpora, "recorded_user_info_jack.json")
    ours = await visitor.get("/twitter/user/info", userName=service.world.stars[0].handle_at(0))
    assert list(ours) == list(theirs)
    assert list(ours["data"]) == list(theirs["data"])
    page = await visitor.search(f"from:{service.world.stars[0].handle_at(0)}")
    assert list(page) == list(recorded(corpora, "recorded_trimmed_advanced_search_top.json"))
    balance = await visitor.get("/oapi/my/info")
    assert list(balance) == list(recorded(corpora, "recorded_my_info_free_account.json"))


async def test_recorded_posts_of_a_timeline_have_no_key_that_ours_lack(
    corpora: Path, service: XService, visitor: SimVisitor
) -> None:
    ours = (await visitor.search(f"from:{service.world.stars[0].handle_at(0)}"))["tweets"][0]
    for theirs in recorded(corpora, "recorded_pruned_last_tweets_nasa_tweets.json"):
        assert set(theirs) <= set(ours)
        assert set(theirs["author"]) <= set(ours["author"])


async def test_recorded_refusals_have_the_same_bodies(corpora: Path, service: XService) -> None:
    spent = XService(service.world, SimClock().now, keys=[Key(name="sim-key")])
    asked = "userName=nobody_here"
    free = XService(service.world, SimClock().now, keys=[Key(name="sim-key", tier=Tier.FREE, bonus_credits=500)])
    await raw(free, "/twitter/user/info", asked)
    for name, answer in (
        ("error_200_user_not_found.json", await raw(service, "/twitter/user/info", asked)),
        ("error_402_out_of_credits.json", await raw(spent, "/twitter/user/info", asked)),
        ("error_429_free_tier.json", await raw(free, "/twitter/user/info", asked)),
        ("docs_error_400_missing_param.json", await raw(service, "/twitter/user/info")),
        ("docs_error_401_invalid_key.json", await raw(service, "/twitter/user/info", asked, "wrong")),
        ("docs_error_403_no_key.json", await raw(service, "/twitter/user/info", asked, None)),
    ):
        assert json.loads(answer.body) == recorded(corpora, name), name
