"""How well pages are read: the saved pages by fold, the generated ones by distractor, locale and shop system.

Run it with `python -m tests.shop_pages.report`; the saved pages are there where MISTNET_TEST_CORPORA names them.
"""

import argparse
import gzip
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from mistnet.shops.extraction.facts import PriceCandidate
from mistnet.shops.extraction.read import read_page
from mistnet.shops.extraction.scorer import choose
from mistnet.shops.model import Availability, PageFacts, PageUnreadable
from tests.corpora import Score
from tests.shop_pages.generate import ShopPage, shop_pages

FOLDS: Final = 5
OFFERED: Final = {Availability.IN_STOCK, Availability.LIMITED, Availability.PREORDER, Availability.BACKORDER}


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One page as it was read, and what is true of it. An empty truth: nothing must be told; None: nothing is known."""

    name: str
    shop: str
    groups: Mapping[str, Sequence[str]]
    facts: PageFacts | None
    amounts: Sequence[Decimal]
    in_stock: bool | None
    skus: Sequence[str] | None

    @property
    def amount(self) -> Decimal | None:
        return self.facts.amount if self.facts else None

    @property
    def is_right(self) -> bool:
        return self.amount in self.amounts if self.amounts else self.amount is None

    def add_price(self, score: Score) -> None:
        score.right += self.amount is not None and self.amount in self.amounts
        score.told += self.amount is not None
        score.there += bool(self.amounts)

    def __str__(self) -> str:
        wanted = " or ".join(map(str, self.amounts)) or "no price"
        evidence = self.facts.evidence if self.facts else ()
        proof = next((f"{each.path} {each.snippet[:40]!r}" for each in evidence if each.field == "amount"), "")
        said = f"{self.facts.verdict}, {self.facts.page_kind}" if self.facts else "unreadable"
        beside = ", ".join(self.groups.get("distractor", ()))
        return f"{self.name}: {self.amount} instead of {wanted} ({said}; {proof}) {beside}"


def read(html: bytes, url: str) -> PageFacts | None:
    try:
        return read_page(html, url=url, content_type=None)
    except PageUnreadable:
        return None


def read_generated(pages: Iterable[ShopPage]) -> Iterator[Reading]:
    for page in pages:
        yield Reading(
            name=page.name,
            shop=urlsplit(page.url).hostname or "",
            groups={
                "distractor": page.distractors or ["none"],
                "locale": [page.locale],
                "system": [page.system],
                "kind": [page.kind],
            },
            facts=read(page.html.encode(), page.url),
            amounts=[] if page.amount is None else [page.amount],
            in_stock=page.in_stock,
            skus=None if page.sku is None or page.amount is None else [page.sku],
        )


class CasePrice(msgspec.Struct, frozen=True, kw_only=True):
    amount: Decimal | None
    currency: str | None


class PriceCase(msgspec.Struct, frozen=True, kw_only=True):
    """A correction as `mistnet products corrections --cases` writes it."""

    expected: CasePrice
    read: CasePrice
    candidates: Sequence[PriceCandidate]


def read_case(line: str | bytes) -> PriceCase:
    given = json.loads(line)
    # A case has none of the page's text.
    candidates = [{"snippet": "", **each} for each in given.pop("candidates")]
    return msgspec.convert({**given, "candidates": candidates}, PriceCase, strict=False)


def judge_cases(file: Path) -> Iterator[str]:
    """Which of the corrected prices would be chosen now."""
    cases = [read_case(line) for line in file.read_bytes().splitlines() if line.strip()]
    for case in cases:
        winner = choose(case.candidates, {}).winner
        told = winner.amount if winner else None
        known = case.expected.amount in {each.amount for each in case.candidates}
        why = "" if known else " (it was no candidate)"
        yield f"{'right' if told == case.expected.amount else 'wrong'}: {told}, is {case.expected.amount}{why}"


def fold_of(shop: str) -> int:
    """All pages of a shop are in one fold."""
    return hashlib.sha256(shop.encode()).digest()[0] % FOLDS


def read_saved(corpora: Path) -> Iterator[Reading]:
    """The saved pages of both sets."""
    for folder in ("zyte_dev", "shops_dev"):
        truths = json.loads((corpora / "pages" / f"{folder}.ground_truth.json").read_text(encoding="utf-8"))
        for name, truth in sorted(truths.items()):
            body = gzip.decompress((corpora / "pages" / folder / f"{name}.html.gz").read_bytes())
            url = truth["url"] or f"https://www.{truth['shop']}/"
            shop = truth.get("shop") or ".".join((urlsplit(url).hostname or "").split(".")[-2:])
            yield Reading(
                name=f"{folder}/{name[:8]}",
                shop=shop,
                groups={"fold": [str(fold_of(shop))], "set": [folder], "kind": [truth.get("kind", "product")]},
                facts=read(body, url),
                amounts=[Decimal(each.strip()) for each in truth.get("price") or ()],
                in_stock=_in_stock(truth.get("availability")),
                skus=[each.strip() for each in truth["sku"]] if "sku" in truth else None,
            )


def _in_stock(said: Any) -> bool | None:
    known = said[0] if isinstance(said, list) and said else said
    return {"InStock": True, "OutOfStock": False}.get(known) if isinstance(known, str) else None


def price_score(readings: Iterable[Reading]) -> Score:
    score = Score()
    for each in readings:
        each.add_price(score)
    return score


def left_alone(readings: Sequence[Reading]) -> tuple[int, int]:
    """Of the pages without a price, how many were told none; and how many there are."""
    bare = [each for each in readings if not each.amounts]
    return sum(each.is_right for each in bare), len(bare)


def by_group(readings: Iterable[Reading], group: str) -> dict[str, list[Reading]]:
    found: dict[str, list[Reading]] = defaultdict(list)
    for each in readings:
        for name in each.groups.get(group, ()):
            found[name].append(each)
    return dict(sorted(found.items()))


def share_right(readings: Sequence[Reading]) -> float:
    """The share of pages whose price, or whose lack of one, was read as it is."""
    return sum(each.is_right for each in readings) / max(len(readings), 1)


def describe(title: str, readings: Sequence[Reading], groups: Sequence[str], *, failures: bool) -> Iterator[str]:
    alone, bare = left_alone(readings)
    yield f"{title}: {len(readings)} pages, right {share_right(readings):.3f}, price {price_score(readings)}"
    yield f"  pages without a price left alone: {alone} of {bare}"
    stated = [each for each in readings if each.in_stock is not None]
    stock = [each.facts.availability in OFFERED if each.facts and each.facts.availability else None for each in stated]
    right = sum(one == each.in_stock for one, each in zip(stock, stated, strict=True))
    yield f"  availability: {right} right of {len(stated)} stated, {sum(one is not None for one in stock)} told"
    numbered = [each for each in readings if each.skus]
    told = [each.facts.sku if each.facts else None for each in numbered]
    right = sum(one in (each.skus or ()) for one, each in zip(told, numbered, strict=True))
    yield f"  sku: {right} right of {len(numbered)} there, {sum(map(bool, told))} told"
    for group in groups:
        yield f"  by {group}:"
        for name, some in by_group(readings, group).items():
            yield f"    {name:24} {len(some):4} pages  right {share_right(some):.3f}  {price_score(some)}"
    if failures:
        yield "  read wrongly:"
        yield from (f"    {each}" for each in readings if not each.is_right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000, help="how many pages are generated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failures", action="store_true", help="list every page that is read wrongly")
    parser.add_argument("--save", type=Path, help="write the generated pages that are read wrongly to this folder")
    parser.add_argument(
        "--cases", type=Path, help="instead judge the prices in a file of `products corrections --cases`"
    )
    given = parser.parse_args()
    if given.cases:
        print(*judge_cases(given.cases), sep="\n")
        return
    if corpora := os.environ.get("MISTNET_TEST_CORPORA"):
        saved = [*read_saved(Path(corpora))]
        print(*describe("Saved pages", saved, ("fold", "set", "kind"), failures=given.failures), sep="\n")
    pages = {each.name: each for each in shop_pages(given.pages, seed=given.seed)}
    generated = [*read_generated(pages.values())]
    groups = ("distractor", "locale", "system", "kind")
    print(*describe("Generated pages", generated, groups, failures=given.failures), sep="\n")
    if given.save:
        given.save.mkdir(parents=True, exist_ok=True)
        for each in generated:
            if not each.is_right:
                (given.save / f"{each.name}.html").write_text(pages[each.name].html, encoding="utf-8")


if __name__ == "__main__":
    main()
