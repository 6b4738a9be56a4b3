"""The same observation has one name however it is told; whatever matters gives another."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mistnet.prices.matching import dedupe_key
from mistnet.shops.extraction.words import plain_text
from mistnet.shops.model import PriceKind

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LETTERS = st.text(st.characters(categories=("Lu", "Ll", "Nd")), min_size=1, max_size=12)
WORDS = st.lists(LETTERS, min_size=1, max_size=6)
BLANKS = st.text(" \t\n\u00a0\u3000", min_size=1, max_size=3)
QUERIES = st.text(st.characters(categories=("Lu", "Ll", "Nd", "P", "S"), exclude_characters="#"), max_size=20)
PATHS = st.lists(st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.", min_size=1, max_size=8), min_size=1, max_size=4)
CENTS = st.integers(0, 10**12)
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 (zone follows)
KINDS = st.sampled_from(PriceKind)


def key(**told: Any) -> str:
    about = {
        "external_id": None,
        "url": "https://shop.example/coins/1909-s-vdb",
        "title": "1909-S VDB Lincoln cent",
        "amount": Decimal("812.50"),
        "observed_at": AT,
        "kind": PriceKind.ASK,
    }
    return dedupe_key(**{**about, **told})


def test_an_id_of_the_source_is_the_key() -> None:
    assert key(external_id="v1|1234|0") == "ext_v1|1234|0"
    assert key(external_id=" 77 ") == "ext_77"


def test_without_an_id_the_key_is_sixteen_digits_of_a_hash() -> None:
    name, digits = key().split("_")
    assert name == "hash"
    assert len(digits) == 16
    assert set(digits) <= set("0123456789abcdef")
    assert key(external_id="  ") == key(external_id="") == key()


def test_an_id_too_long_for_an_index_goes_by_its_hash() -> None:
    one, other = key(external_id="x" * 5_000), key(external_id="x" * 5_001)
    assert one.startswith("ext_")
    assert len(one) < 100
    assert one != other


@given(PATHS, QUERIES, QUERIES, st.sampled_from(["", "/"]))
def test_what_a_url_carries_along_does_not_matter(path: list[str], query: str, fragment: str, slash: str) -> None:
    bare = "https://shop.example/" + "/".join(path)
    assert key(url=f"{bare}{slash}?{query}#{fragment}") == key(url=bare)


@given(PATHS)
def test_the_case_of_a_url_and_blanks_around_it_do_not_matter(path: list[str]) -> None:
    bare = "https://shop.example/" + "/".join(path)
    assert key(url=bare.upper()) == key(url=f"  {bare}\n") == key(url=bare.swapcase()) == key(url=bare)


@given(WORDS, st.lists(BLANKS, min_size=7, max_size=7))
@example(["straße", "ΣΊΣΥΦΟΣ"], [" "] * 7)
@example(["ﬁrst", "Ⅷ", "ｆｕｌｌ"], ["\u3000"] * 7)  # noqa: RUF001 (signs that mean letters)
def test_the_case_of_a_title_and_its_blanks_do_not_matter(words: list[str], blanks: list[str]) -> None:
    title = " ".join(words)
    spread = blanks[0] + "".join(word + blank for word, blank in zip(words, blanks[1:], strict=False))
    assert key(title=spread) == key(title=title.upper()) == key(title=title.lower()) == key(title=title)


@given(TIMES, st.integers(0, 86_399))
def test_the_hour_does_not_matter_within_a_day_of_utc(at: datetime, second: int) -> None:
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    elsewhere = (midnight + timedelta(seconds=second)).astimezone(None)
    assert key(observed_at=elsewhere) == key(observed_at=midnight)


@given(CENTS)
def test_an_amount_is_the_same_however_many_noughts_it_ends_with(cents: int) -> None:
    amount = Decimal(cents) / 100
    assert key(amount=amount) == key(amount=amount.quantize(Decimal("0.00001"))) == key(amount=amount.normalize())


@pytest.mark.parametrize("amount", ["1E+40", "0.000001", "99999999999999999999999999999999.99"])
def test_no_amount_is_too_large_or_too_small_for_a_key(amount: str) -> None:
    assert key(amount=Decimal(amount)).startswith("hash_")


@given(PATHS, PATHS)
def test_another_path_is_another_observation(one: list[str], other: list[str]) -> None:
    assume(one != other)
    assert key(url="https://shop.example/" + "/".join(one)) != key(url="https://shop.example/" + "/".join(other))


@given(WORDS, WORDS)
def test_another_title_is_another_observation(one: list[str], other: list[str]) -> None:
    assume(plain_text(" ".join(one)) != plain_text(" ".join(other)))
    assert key(title=" ".join(one)) != key(title=" ".join(other))


@given(CENTS, CENTS)
def test_another_number_of_cents_is_another_observation(one: int, other: int) -> None:
    assume(one != other)
    assert key(amount=Decimal(one) / 100) != key(amount=Decimal(other) / 100)


@given(TIMES, TIMES)
def test_another_day_is_another_observation(one: datetime, other: datetime) -> None:
    assume(one.date() != other.date())
    assert key(observed_at=one) != key(observed_at=other)


@given(KINDS, KINDS)
def test_another_kind_is_another_observation(one: PriceKind, other: PriceKind) -> None:
    assume(one is not other)
    assert key(kind=one) != key(kind=other)


def test_parts_cannot_be_mistaken_for_each_other() -> None:
    assert key(url="https://shop.example/a", title="b c") != key(url="https://shop.example/a b", title="c")


@pytest.mark.parametrize("url", ["", "not a url", "http://[broken/x?y", "//host", "https://Shop.Example:443/\ud800"])
def test_no_address_is_too_odd_for_a_key(url: str) -> None:
    assert key(url=url).startswith("hash_")
