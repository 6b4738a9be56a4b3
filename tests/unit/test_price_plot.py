"""A price course in a terminal: to scale, no wider than the window, and with a mark for every post."""

from datetime import timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as some

from mistnet.cli.lineage import FINE, HEIGHT, PLAIN, PlottedPost, plot
from mistnet.prices.lineage import Promotion, SeenPrice
from mistnet.shops.model import OfferId
from tests.support import START

DAY = timedelta(days=1)
AMOUNTS = some.decimals("0", "99999999", places=2)


def asked(day: float, amount: str | Decimal, currency: str = "TWD", lasting: float = 1) -> SeenPrice:
    return SeenPrice(
        id=OfferId(1),
        amount=Decimal(amount),
        amount_max=None,
        currency=currency,
        availability=None,
        observed_at=START + day * DAY,
        last_seen_at=START + (day + lasting) * DAY,
    )


def posted(day: float, kind: Promotion = Promotion.OWN) -> PlottedPost:
    return PlottedPost(at=START + day * DAY, kind=kind)


def test_a_price_that_falls_goes_down_from_left_to_right() -> None:
    lines = plot([asked(0, "300"), asked(5, "100", lasting=5)], [posted(5)], width=30)
    assert lines[0].startswith("300 ┤─")
    assert lines[HEIGHT - 1].startswith("100 ┤ ")
    assert lines[HEIGHT - 1].endswith("─")
    assert lines[HEIGHT].index("▲") == lines[1].index("│")
    assert lines[-1] == "TWD   ▲ a post"


def test_several_posts_in_one_place_are_a_number_and_reposts_look_different() -> None:
    posts = [*[posted(1)] * 3, *[posted(5)] * 12, posted(9, Promotion.REPOST)]
    lines = plot([asked(0, "10", lasting=10)], posts, width=60, glyphs=PLAIN)
    assert "".join(lines[-3].split()) == "3+r"
    assert lines[-1] == "TWD   ^ a post   r a repost   2-9, + so many posts"


def test_one_price_is_one_line_and_only_the_latest_currency_is_drawn() -> None:
    lines = plot([asked(0, "7", "USD"), asked(1, "10")], [], width=40)
    assert len(lines) == 3
    assert lines[0].startswith("10 ┤─")
    assert lines[-1] == "TWD"
    assert plot([], [posted(1)], width=40) == []


@given(
    course=some.lists(
        some.tuples(some.floats(0, 400), some.decimals("0", "99999999", places=2)), min_size=1, max_size=30
    ),
    posts=some.lists(some.floats(-100, 500), max_size=30),
    width=some.integers(50, 120),
)
def test_nothing_is_wider_than_the_window(course: list[tuple[float, Decimal]], posts: list[float], width: int) -> None:
    prices = [asked(day, amount) for day, amount in sorted(course)]
    lines = plot(prices, [posted(day) for day in posts], width=width, glyphs=FINE)
    assert max(map(len, lines[:-1])) <= width
    assert not posts or set("▲23456789+") & set(lines[-3])
