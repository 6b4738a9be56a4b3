"""Shop pages that are made: their truth stands on them, and they are the same in every run."""

import re
from decimal import Decimal
from html import unescape

from mistnet.cli.output import to_json_line
from mistnet.shops.extraction import explain_page
from mistnet.shops.extraction.scorer import choose
from mistnet.shops.model import OfferId, ProductId
from mistnet.shops.store.corrections import CorrectionLine, case_of, read_kept
from tests.shop_pages.generate import SYSTEMS, ShopPage, shop_page, shop_pages
from tests.shop_pages.locales import locales
from tests.shop_pages.report import by_group, fold_of, left_alone, price_score, read_case, read_generated, share_right
from tests.support import START


def pages(count: int = 340) -> list[ShopPage]:
    return [*shop_pages(count)]


def test_a_seed_makes_the_same_page_again() -> None:
    assert shop_page(7) == shop_page(7)
    assert shop_page(7) != shop_page(7, seed=2)


def test_every_system_and_locale_has_its_turn_and_a_third_of_the_pages_has_no_price() -> None:
    made = pages()
    assert {each.locale for each in made} == set(locales())
    assert {*SYSTEMS, "custom_auction"} <= {each.system for each in made}
    assert 0.25 < sum(each.amount is None for each in made) / len(made) < 0.45


def test_the_price_of_a_page_stands_on_it() -> None:
    for each in pages():
        if each.amount is not None:
            text = unescape(re.sub(r"<[^>]*>", "", each.html)).translate({0xA0: " ", 0x202F: " ", 0x2009: " "})
            locale = locales()[each.locale]
            whole = locale.write(each.amount).rpartition(locale.number[1])[0] or locale.write(each.amount)
            assert whole in text or str(each.amount) in each.html, each.name
            assert each.list_amount is None or each.list_amount > each.amount


def test_amounts_are_written_as_in_their_country() -> None:
    amount = Decimal("1234567.5")
    written = {name: each.write(amount) for name, each in locales().items()}
    assert written["en-IN"] == "12,34,567.50"
    assert written["ar-OM"] == "1,234,567.500"
    assert written["de-CH"] == "1'234'567.50"
    assert written["pt-BR"] == "1.234.567,50"
    assert written["ja-JP"] == "1,234,568"


def test_all_pages_of_a_shop_are_in_one_fold() -> None:
    assert fold_of("shop.example") == fold_of("shop.example")
    assert {fold_of(f"{number}.example") for number in range(50)} == {0, 1, 2, 3, 4}


def test_generated_pages_are_read_right_whatever_stands_beside_the_price_and_wherever_the_shop_is() -> None:
    readings = [*read_generated(pages(1_000))]
    print(price_score(readings), left_alone(readings))
    assert share_right(readings) >= 0.98
    assert price_score(readings).f1 >= 0.98
    for group in ("distractor", "locale"):
        shares = {name: share_right(some) for name, some in by_group(readings, group).items()}
        assert {name: share for name, share in shares.items() if share < 0.95} == {}


def test_a_corrected_price_is_a_test_case_of_the_choice_without_its_page() -> None:
    """What `mistnet products corrections --cases` writes is enough to choose again."""
    tried = 0
    for page in pages(60):
        reading = explain_page(page.html.encode(), url=page.url, content_type="text/html")
        if page.amount is None or reading.facts.amount != page.amount:
            continue
        line = CorrectionLine(
            id=1,
            offer_id=OfferId(1),
            product_id=ProductId(1),
            at=START,
            author="kim",
            note=None,
            read_amount=Decimal(1),
            read_currency="EUR",
            amount=page.amount,
            currency=page.currency,
            list_amount=None,
            availability=None,
            title=reading.facts.title,
            url=page.url,
            reading=read_kept(reading.kept()),
        )
        case = read_case(to_json_line(case_of(line)))
        assert case.expected.amount == page.amount
        assert all(not each.snippet for each in case.candidates)
        winner = choose(case.candidates, {}).winner
        assert winner is not None
        assert winner.amount == page.amount, page.name
        tried += 1
    assert tried > 20
