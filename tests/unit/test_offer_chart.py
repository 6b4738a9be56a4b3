"""What was asked over time is drawn to scale, and what is not believed cannot spoil it."""

from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mistnet.shops.model import OfferId, ProductId
from mistnet.shops.store.product_pages import OfferLine
from mistnet.web.pages.charts import HEIGHT, WIDTH
from mistnet.web.pages.offer_charts import offer_chart
from tests.support import START

DAY = timedelta(days=1)
AMOUNTS = some.decimals(min_value="0", max_value="1000000000", places=2)


def asked(place: int, amount: str | Decimal | None, *, at: datetime | None = None, **about: Any) -> OfferLine:
    when = at or START + place * DAY
    known: dict[str, Any] = {
        "amount": None if amount is None else Decimal(amount),
        "amount_max": None,
        "list_amount": None,
        "currency": "TWD",
        "doubt": None,
        **about,
    }
    return OfferLine(
        id=OfferId(place + 1),
        product_id=ProductId(1),
        link_id=None,
        observed_at=when,
        last_seen_at=when + DAY / 2,
        times_seen=1,
        availability=None,
        sold_count=None,
        rating_count=None,
        content_hash="h",
        path="p",
        confidence=1.0,
        evidence=[],
        corrected_at=None,
        **known,
    )


def test_a_higher_price_stands_higher_and_a_later_one_further_right() -> None:
    chart = offer_chart([asked(2, "300"), asked(0, "100"), asked(1, "200")])
    assert chart is not None
    assert [dot.x for dot in chart.believed] == sorted(dot.x for dot in chart.believed)
    assert all(before.y > after.y for before, after in pairwise(chart.believed))
    assert chart.line.startswith(f"M{chart.believed[0].x} {chart.believed[0].y}H{chart.believed[1].x}V")
    assert chart.told == "3 offers from 100 to 300 TWD"
    assert {"100", "200", "300"} >= {label for _, label in chart.paper.rules} - {"150", "250"}
    assert [anchor for _, _, anchor in chart.paper.moments] == ["start", "middle", "end"]


def test_a_doubted_amount_is_a_mark_at_the_edge_and_no_part_of_the_scale() -> None:
    plain = [asked(0, "100"), asked(3, "110")]
    doubted = [
        asked(1, "11000", doubt="a hundred times"),
        asked(2, "1.1", doubt="a hundredth"),
        asked(2, "105", doubt="?"),
    ]
    chart, alone = offer_chart([*plain, *doubted]), offer_chart(plain)
    assert chart is not None
    assert alone is not None
    assert [dot.beyond for dot in chart.doubted] == ["up", "down", None]
    assert [label for _, label in chart.paper.rules] == [label for _, label in alone.paper.rules]
    assert chart.line == alone.line
    assert "a hundred times" in chart.doubted[0].told
    assert chart.told.endswith("; 3 doubted")


def test_variants_are_a_band_above_the_least_price() -> None:
    chart = offer_chart([asked(0, "100", amount_max=Decimal(150)), asked(1, "90")])
    assert chart is not None
    assert chart.band.count("Z") == 1
    assert "100 to 150 TWD" in chart.believed[0].told


def test_the_currency_of_the_latest_offer_is_drawn_and_others_are_counted() -> None:
    chart = offer_chart([asked(0, "10", currency="USD"), asked(1, "300"), asked(2, "9", currency="USD", doubt="?")])
    assert chart is not None
    assert (chart.currency, len(chart.believed), len(chart.doubted), chart.elsewhere) == ("TWD", 1, 0, 2)


@pytest.mark.parametrize("offers", [[], [asked(0, None, currency=None)]])
def test_without_an_amount_there_is_no_drawing(offers: list[OfferLine]) -> None:
    assert offer_chart(offers) is None


def test_doubted_offers_alone_are_drawn_without_a_line() -> None:
    chart = offer_chart([asked(0, "10", doubt="?"), asked(1, "20", doubt="?")])
    assert chart is not None
    assert (chart.line, chart.believed, len(chart.doubted)) == ("", [], 2)


@given(some.lists(some.tuples(AMOUNTS, some.none() | AMOUNTS, some.booleans()), min_size=1, max_size=20))
def test_whatever_was_asked_stays_on_the_paper(amounts: list[tuple[Decimal, Decimal | None, bool]]) -> None:
    offers = [
        asked(place, amount, amount_max=most, doubt="?" if doubted else None)
        for place, (amount, most, doubted) in enumerate(amounts)
    ]
    chart = offer_chart(offers)
    assert chart is not None
    for dot in (*chart.believed, *chart.doubted):
        assert 0 <= dot.x <= WIDTH
        assert 0 <= dot.y <= HEIGHT
    assert 1 <= len(chart.paper.rules) <= 8
    assert len({label for _, label in chart.paper.rules}) == len(chart.paper.rules)
