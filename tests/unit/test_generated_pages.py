"""Shop pages that are made: their truth stands on them, and they are the same in every run."""

import re
from decimal import Decimal
from html import unescape

from tests.shop_pages.generate import SYSTEMS, ShopPage, shop_page, shop_pages
from tests.shop_pages.locales import locales
from tests.shop_pages.report import fold_of


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
