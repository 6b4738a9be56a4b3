"""Posts as marks on a drawing: none is lost, none lies upon another, and each says what it stands for."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as some

from mistnet.prices.lineage import Promotion, SeenPrice, around
from mistnet.prices.store.lineage import Lined, Promoting
from mistnet.shops.model import OfferId
from mistnet.social.model import THREADS, Platform, PostId, UserId, X
from mistnet.web.pages.charts import WIDTH
from mistnet.web.pages.offer_charts import offer_chart, post_marks
from tests.support import START
from tests.unit.test_offer_chart import asked

DAY = timedelta(days=1)
OFFERS = [asked(0, "200"), asked(10, "150"), asked(20, "180")]


def lined(days: float, *, number: int = 7, platform: Platform = X, **about: object) -> Lined:
    post = Promoting(
        platform=platform,
        post_id=PostId(number),
        author_id=UserId(11),
        handle="ann",
        name=None,
        tracked=False,
        text="look at <this>",
        post_url="javascript:alert(1)",
        conversation_id=None,
        created_at=START + days * DAY,
        gone_at=None,
        urls=[],
        **{"kind": Promotion.OWN, **about},  # type: ignore[arg-type]
    )
    course = [
        SeenPrice(
            id=OfferId(each.id),
            amount=each.amount or 0,  # type: ignore[arg-type]
            amount_max=None,
            currency="TWD",
            availability=None,
            observed_at=each.observed_at,
            last_seen_at=each.last_seen_at,
        )
        for each in OFFERS
    ]
    return Lined(post=post, prices=around(course, post.created_at, now=START + 90 * DAY))


def test_a_mark_of_one_post_leads_to_its_conversation_and_tells_both_prices() -> None:
    posts = [lined(5, number=99)]
    chart = offer_chart(OFFERS, [each.post.created_at for each in posts])
    assert chart is not None
    (mark,) = post_marks(chart, posts, listed="#posts").marks
    assert mark.href == "/conversations/99#p99"
    assert mark.label == "@ann, 06 Mar 2026: 200 TWD before, 150 TWD after (-25.00 %)"
    assert (mark.kind, mark.posts, mark.more) == ("own", 1, 0)


def test_posts_that_stand_close_are_one_mark_that_leads_to_their_list() -> None:
    posts = [lined(5 + place / 100, number=place + 1) for place in range(5)]
    chart = offer_chart(OFFERS, [])
    assert chart is not None
    (mark,) = post_marks(chart, posts, listed="#posts").marks
    assert (mark.posts, mark.more, mark.href) == (5, 2, "#posts")
    assert mark.label.startswith("5 posts from 06 Mar 2026 to 06 Mar 2026, the latest by @ann")


def test_an_address_that_is_none_is_never_led_to_and_prices_not_known_are_said_so() -> None:
    posts = [lined(-3, platform=THREADS, kind=Promotion.REPOST)]
    chart = offer_chart(OFFERS, [each.post.created_at for each in posts])
    assert chart is not None
    (mark,) = post_marks(chart, posts, listed="#posts").marks
    assert (mark.href, mark.kind) == ("#posts", "repost")
    assert mark.label == "@ann (a repost), 26 Feb 2026: no price known before, 200 TWD after"


@given(days=some.lists(some.floats(-2_000, 2_000), max_size=60))
def test_every_post_is_in_a_mark_or_counted_as_outside(days: list[float]) -> None:
    posts = [lined(each, number=place + 1) for place, each in enumerate(days)]
    chart = offer_chart(OFFERS, [each.post.created_at for each in posts])
    assert chart is not None
    found = post_marks(chart, posts, listed="#posts")
    assert sum(mark.posts for mark in found.marks) + found.outside == len(posts)
    assert all(0 <= mark.x <= WIDTH and 0 <= mark.left <= 100 for mark in found.marks)
    assert all(before.x < after.x for before, after in pairwise(found.marks))


def test_a_post_from_the_end_of_time_has_prices_too() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    assert around([], last, now=START).lowest[-1].over is False
