"""Where the recorded and published cases are; tests that read them are skipped where they are not."""

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mistnet.shops.extraction.read import read_page
from mistnet.shops.model import Availability, PageFacts

_OFFERED = {Availability.IN_STOCK, Availability.LIMITED}


def corpus(*parts: str) -> Path:
    folder = os.environ.get("MISTNET_TEST_CORPORA")
    if not folder or not (Path(folder).joinpath(*parts)).exists():
        pytest.skip("corpora: MISTNET_TEST_CORPORA is not set, or lacks " + "/".join(parts))
    return Path(folder).joinpath(*parts)


def cases(*parts: str) -> Any:
    return json.loads(corpus(*parts).read_text(encoding="utf-8"))


class Score(msgspec.Struct, kw_only=True):
    """How often a field was right, told, and there to be told."""

    right: int = 0
    told: int = 0
    there: int = 0

    @property
    def precision(self) -> float:
        return self.right / max(self.told, 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.there, 1)

    @property
    def f1(self) -> float:
        return 2 * self.right / max(self.told + self.there, 1)

    def __str__(self) -> str:
        return f"P {self.precision:.3f} R {self.recall:.3f} F1 {self.f1:.3f} ({self.right}/{self.told}/{self.there})"


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the product benchmark: its name, what was read, and what is true."""

    name: str
    facts: PageFacts
    truth: Mapping[str, list[str]]

    def is_right(self, field: str) -> bool:
        told, true = self.told(field), [each.strip() for each in self.truth.get(field, [])]
        if field == "price":
            return told is not None and Decimal(told) in map(Decimal, true)
        return told in true

    def told(self, field: str) -> str | None:
        match field:
            case "price":
                return None if self.facts.amount is None else str(self.facts.amount)
            case "availability":
                known = self.facts.availability
                return None if known is None else "InStock" if known in _OFFERED else "OutOfStock"
            case _:
                return self.facts.sku


def judged_pages() -> Iterator[Judged]:
    """The saved product pages with their truth, read as they would be when fetched."""
    folder = corpus("pages", "zyte_dev")
    for name, truth in sorted(cases("pages", "zyte_dev.ground_truth.json").items()):
        body = gzip.decompress((folder / f"{name}.html.gz").read_bytes())
        yield Judged(name=name, facts=read_page(body, url=truth["url"], content_type=None), truth=truth)


def scored(pages: list[Judged], field: str) -> Score:
    score = Score()
    for page in pages:
        score.right += page.is_right(field)
        score.told += page.told(field) is not None
        score.there += bool(page.truth.get(field))
    return score
