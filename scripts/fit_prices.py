"""Fits the weights of the price scorer to saved pages with known prices, and judges them on shops that were held out.

    MISTNET_TEST_CORPORA=... .venv/bin/python scripts/fit_prices.py            # cross-validate and print
    MISTNET_TEST_CORPORA=... .venv/bin/python scripts/fit_prices.py --write    # and write the weights

The model is a choice among the groups of a page and no price (a conditional logit). Its weights are pulled towards the
priors, which people wrote down; the pull is strong, because the pages are few. Each page is judged in several forms: as
it is, without JSON-LD, without all data for machines, and without names too. They show how well pages are read that
lack them. The weights are fitted to the pages as they are: with the other forms they learn to expect a price on every
page. All forms of all pages of one shop are in one fold.
"""

import argparse
import gzip
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mistnet.shops.extraction.documents import decode
from mistnet.shops.extraction.facts import PriceCandidate
from mistnet.shops.extraction.read import collect_page
from mistnet.shops.extraction.scorer import OWN, Weights, choose, group_candidates

PAGES = Path(os.environ.get("MISTNET_TEST_CORPORA", "/nowhere")) / "pages"
CORPORA = ("zyte_dev", "shops_dev")
FOLDS = 5
SECOND_LEVEL = {"co", "com", "net", "org", "gov", "ac", "edu"}
FORMS = ("whole", "no json-ld", "no data", "no names")
SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL | re.IGNORECASE)
JSON_LD = re.compile(r"<script[^>]*ld\+json.*?</script>", re.DOTALL | re.IGNORECASE)
DATA = re.compile(
    r"\s(?:itemprop|itemscope|itemtype|property|typeof|data-[\w-]+)(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>]+))?", re.IGNORECASE
)
NAMES = re.compile(r"\s(?:class|id)=(?:\"[^\"]*\"|'[^']*'|[^\s>]+)", re.IGNORECASE)


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One form of a page: what it offers to the scorer, and the true prices."""

    corpus: str
    name: str
    shop: str
    form: str
    candidates: Sequence[PriceCandidate]
    page: Mapping[str, float]
    truth: Sequence[Decimal]
    settled: bool

    @property
    def fold(self) -> int:
        return int(hashlib.sha256(self.shop.encode()).hexdigest(), 16) % FOLDS


def shop_of(host: str) -> str:
    """The name of the shop: `kettles` for `www.kettles.co.uk` and `shop.kettles.de`."""
    labels = host.lower().split(".")
    return labels[-3] if len(labels) > 2 and labels[-2] in SECOND_LEVEL else labels[-2] if len(labels) > 1 else host


def form_of(html: str, form: str) -> str:
    if form == "no json-ld":
        return JSON_LD.sub("", html)
    if form in ("no data", "no names"):
        html = DATA.sub("", SCRIPT.sub("", html))
        return NAMES.sub("", html) if form == "no names" else html
    return html


def examples() -> Iterator[Example]:
    for corpus in CORPORA:
        for name, known in sorted(json.loads((PAGES / f"{corpus}.ground_truth.json").read_text()).items()):
            url = known["url"] or f"https://{known['shop']}/"
            html = decode(gzip.decompress((PAGES / corpus / f"{name}.html.gz").read_bytes()))
            for form in FORMS:
                read = collect_page(form_of(html, form), url)
                yield Example(
                    corpus=corpus,
                    name=name,
                    shop=shop_of(known.get("shop") or urlsplit(url).hostname or ""),
                    form=form,
                    candidates=read.candidates,
                    page={**read.features},
                    truth=[Decimal(each.strip()) for each in known.get("price") or []],
                    settled=read.verdict is not None,
                )


Row = tuple[list[dict[str, float]], int]
"""The options of a page, no price first, with the features of each; and which one is right."""


def rows(pages: Sequence[Example], by: Weights) -> Iterator[Row]:
    for page in pages:
        if page.settled or page.form != "whole":
            continue
        groups = group_candidates(page.candidates, by.candidate)
        options = [{f"page:{name}": value for name, value in page.page.items()}]
        right = 0
        for place, group in enumerate(groups, 1):
            features = {f"group:{name}": value for name, value in group.features.items()}
            for each in group.best.values():
                for name, value in each.features.items():
                    features[name] = features.get(name, 0.0) + value
            options.append(features)
            if group.amount in page.truth:
                right = place
        # A price that is nowhere on the page teaches nothing.
        if right or not page.truth:
            yield options, right


def fit(
    pages: Sequence[Example], prior: Mapping[str, float], *, pull: float, rounds: int = 3, steps: int = 120
) -> dict[str, float]:
    """The weights with the least loss: the surprise at the right options, and the distance from the priors."""
    current = dict(prior)
    for _ in range(rounds):
        material = list(rows(pages, as_weights(current)))
        moment: dict[str, float] = {}
        square: dict[str, float] = {}
        for step in range(1, steps + 1):
            slope = {name: pull * (current.get(name, 0.0) - prior.get(name, 0.0)) for name in current}
            for options, right in material:
                scores = [sum(value * current.get(name, 0.0) for name, value in each.items()) for each in options]
                most = max(scores)
                odds = [math.exp(each - most) for each in scores]
                total = sum(odds)
                for place, each in enumerate(options):
                    miss = odds[place] / total - (place == right)
                    if abs(miss) > 1e-4:
                        for name, value in each.items():
                            slope[name] = slope.get(name, 0.0) + miss * value
            for name, value in slope.items():  # Adam
                moment[name] = 0.9 * moment.get(name, 0.0) + 0.1 * value
                square[name] = 0.99 * square.get(name, 0.0) + 0.01 * value * value
                pace = moment[name] / (1 - 0.9**step) / (math.sqrt(square[name] / (1 - 0.99**step)) + 1e-8)
                current[name] = current.get(name, 0.0) - 0.05 * pace
    return current


def as_weights(flat: Mapping[str, float]) -> Weights:
    return Weights(
        candidate={name: each for name, each in flat.items() if ":" not in name},
        group={name[6:]: each for name, each in flat.items() if name.startswith("group:")},
        page={name[5:]: each for name, each in flat.items() if name.startswith("page:")},
    )


def flat_priors() -> dict[str, float]:
    return {
        **OWN.candidate,
        **{f"group:{name}": each for name, each in OWN.group.items()},
        **{f"page:{name}": each for name, each in OWN.page.items()},
    }


class Tally(msgspec.Struct, kw_only=True):
    right: int = 0
    told: int = 0
    there: int = 0
    empty: int = 0
    alone: int = 0

    def add(self, told: Decimal | None, truth: Sequence[Decimal]) -> None:
        self.right += told is not None and told in truth
        self.told += told is not None
        self.there += bool(truth)
        self.empty += not truth
        self.alone += not truth and told is None

    def __str__(self) -> str:
        precision, recall = self.right / max(self.told, 1), self.right / max(self.there, 1)
        f1 = 2 * self.right / max(self.told + self.there, 1)
        return (
            f"P {precision:.3f}  R {recall:.3f}  F1 {f1:.3f}  ({self.right}/{self.told}/{self.there}; "
            f"left alone {self.alone}/{self.empty})"
        )


def judge(pages: Sequence[Example], by: Weights, tallies: dict[str, Tally], *, verbose: bool) -> None:
    for page in pages:
        choice = None if page.settled else choose(page.candidates, page.page, by)
        told = choice.winner.amount if choice and choice.winner else None
        for key in (f"{page.form}: {page.corpus}", f"{page.form}: both", f"{page.form}: fold {page.fold}"):
            tallies.setdefault(key, Tally()).add(told, page.truth)
        if verbose and page.form == "whole" and not (told in page.truth if told else not page.truth):
            print(
                f"  {page.corpus} {page.name[:8]} {page.shop}: {told} for {[str(each) for each in page.truth]}", end=""
            )
            if choice:
                print(f" (none {choice.none_score:.1f}, {' '.join(sorted(page.page))})")
            for group in choice.groups if choice else ():
                if group.amount in (told, *page.truth):
                    features = {name for each in group.best.values() for name in each.features} | group.features.keys()
                    print(f"      {group.amount} {group.score:.1f}: {' '.join(sorted(features))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pull", type=float, default=15.0)
    parser.add_argument("--prior-only", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    pages = list(examples())
    prior = flat_priors()
    tallies: dict[str, Tally] = {}
    for fold in range(FOLDS):
        held = [each for each in pages if each.fold == fold]
        learnt = (
            prior if given.prior_only else fit([each for each in pages if each.fold != fold], prior, pull=given.pull)
        )
        judge(held, as_weights(learnt), tallies, verbose=given.verbose)
    for key in sorted(tallies):
        print(f"{key:24} {tallies[key]}")
    if given.write:
        print(fit(pages, prior, pull=given.pull))


if __name__ == "__main__":
    main()
