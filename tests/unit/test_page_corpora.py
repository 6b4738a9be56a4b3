"""Saved pages with known truth: how well they are read, and that no change reads them worse unnoticed."""

import gzip
import json
import re
from decimal import Decimal
from functools import cache

from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.documents import decode, documents
from mistnet.shops.extraction.read import read_page
from mistnet.shops.model import PageFacts
from tests.corpora import Judged, cases, corpus, judged_pages, scored

PRICE = "$$PRICE$$"
SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
DATA = re.compile(r"\s(?:item\w+|property|typeof|data-[\w-]+)(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>]+))?", re.IGNORECASE)


@cache
def saved_pages() -> list[Judged]:
    """Read once per process: it takes seconds for all pages."""
    return list(judged_pages())


def test_saved_product_pages_are_read_as_well_as_by_the_best() -> None:
    pages = saved_pages()
    scores = {field: scored(pages, field) for field in ("price", "availability", "sku")}
    for field, score in scores.items():
        halves = [scored([page for page in pages if _half(page) == half], field) for half in (0, 1)]
        print(f"{field}: {score}; one half {halves[0]}; the other {halves[1]}")
    assert scores["price"].f1 >= 0.95
    assert scores["price"].precision >= 0.95
    assert scores["availability"].f1 >= 0.9
    assert scores["sku"].f1 >= 0.9


def test_what_people_see_tells_the_price_of_most_pages_by_itself() -> None:
    """The data for machines are left out, on all pages, so that the rules for the rest are tried on more of them."""
    right = told = there = 0
    for name, truth in sorted(cases("pages", "zyte_dev.ground_truth.json").items()):
        html = decode(gzip.decompress((corpus("pages", "zyte_dev") / f"{name}.html.gz").read_bytes()))
        bare = DATA.sub("", SCRIPT.sub("", html))
        found = read_page(bare.encode(), url=truth["url"], content_type="text/html; charset=utf-8").amount
        amounts = [Decimal(each.strip()) for each in truth.get("price", [])]
        told += found is not None
        there += bool(amounts)
        right += found is not None and found in amounts
    print(f"from what people see alone: {right} right of {told} told and {there} there")
    assert right >= 0.9 * told
    assert right >= 0.7 * there


def test_every_value_of_a_saved_page_has_its_evidence() -> None:
    for page in saved_pages():
        told = {each.field for each in page.facts.evidence}
        assert [name for name in _values(page.facts) if name not in told] == [], page.name


def _values(facts: PageFacts) -> list[str]:
    names = ("title", "brand", "sku", "image_url", "canonical_url", "amount", "list_amount", "currency", "availability")
    return [name for name in (*names, "sold_count", "rating_count", "bid_count") if getattr(facts, name) is not None]


def _half(page: Judged) -> int:
    return int(page.name[-1], 16) % 2


def test_snippets_of_shops_tell_price_and_stock() -> None:
    for case in cases("pages", "changedetection_snippets.dev.json"):
        html = case["html"].replace("$" + PRICE, "$1049.50").replace(PRICE, "1049.50")
        facts = read_page(html.encode(), url="https://shop.example/x", content_type="text/html")
        expected = "767.55" if "767.55" in html else "1049.50"
        assert str(facts.amount) == expected
        assert facts.currency in ("USD", "EUR")
        assert facts.availability is not None


def test_json_ld_is_found_as_the_samples_say() -> None:
    folder = corpus("pages", "extruct_dev")
    for sample in sorted(folder.glob("*.html")):
        expected = json.loads(sample.with_suffix(".expected.json").read_text(encoding="utf-8"))
        wanted = expected.get("json-ld") if isinstance(expected, dict) else expected
        if wanted is None or "jsonld" not in sample.name.lower():
            continue
        found = list(documents(LexborHTMLParser(sample.read_text(encoding="utf-8"))))
        assert json.loads(json.dumps(found, default=float)) == wanted, sample.name
