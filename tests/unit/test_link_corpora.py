"""The rules against published and collected cases; skipped where those are not at hand."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mistnet.cli.texts import TextLine, UrlLine, find_mentions, name_link
from mistnet.shops.links.address import RefusedUrl, parse
from mistnet.shops.links.finding import find_urls
from mistnet.shops.links.naming import canonical_link

Case = Mapping[str, Any]
PARTS = (
    *("href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash", "origin"),
)
IDS = ("region", "shop_id", "item_id", "variant_id")


def corpus(name: str) -> str:
    folder = os.environ.get("MISTNET_TEST_CORPORA")
    if not folder:
        pytest.skip("corpora: MISTNET_TEST_CORPORA is not set")
    return (Path(folder) / name).read_text(encoding="utf-8")


def cases(name: str) -> Sequence[Case]:
    found: Sequence[Case] = json.loads(corpus(name))
    assert found
    return found


def test_every_marketplace_url_is_told_as_expected() -> None:
    assert [case for case in cases("url/marketplace_url_cases.dev.json") if not _as_expected(case)] == []


def _as_expected(case: Case) -> bool:
    answer = name_link(UrlLine(case["input"]))
    if case["kind"] == "reject":
        return answer["platform"] is None and answer["ids"] == {}
    expected = {name: case[name] for name in IDS if case.get(name)}
    ids = {name: value for name, value in answer["ids"].items() if name in expected or name == "item_id"}
    told = (answer["platform"], answer["kind"], answer["canonical"], answer["refused"], ids)
    return told == (case["platform"], case["kind"], case["canonical"], None, expected)


def test_look_alikes_among_them_are_refused_and_not_just_unknown() -> None:
    rejected = [case["input"] for case in cases("url/marketplace_url_cases.dev.json") if case["kind"] == "reject"]
    borrowing = [url for url in rejected if "//example.com" not in url]
    assert [url for url in borrowing if not isinstance(canonical_link(url), RefusedUrl)] == []


def test_every_marketplace_text_gives_its_urls_codes_and_title() -> None:
    wrong = []
    for case in cases("text/marketplace_text_cases.dev.json"):
        answer = find_mentions(TextLine(case["text"]))
        told = (answer["urls"], answer["codes"], answer["title_hint"] if "title_hint" in case else None)
        if told != (case["expected_urls"], case.get("taokouling", []), case.get("title_hint")):
            wrong.append((case["id"], told))
    assert wrong == []


def test_x_would_link_the_same_urls() -> None:
    yaml = pytest.importorskip("yaml")
    groups = yaml.safe_load(corpus("text/twitter_text_extract_urls.dev.yml"))["tests"]
    wrong = []
    for case in (case for group in groups.values() for case in group):
        found = find_urls(case["text"])
        expected = [each if isinstance(each, str) else each["url"] for each in case["expected"]]
        places = [each["indices"] for each in case["expected"] if not isinstance(each, str)]
        if [each.url for each in found] != expected or (places and [[e.start, e.end] for e in found] != places):
            wrong.append((case["text"], expected, found))
    assert wrong == []


def test_urls_are_parsed_as_the_standard_says() -> None:
    wrong = [case for case in cases("url/wpt_urltestdata.dev.json") if not _parsed_as_expected(case)]
    assert wrong == []


def _parsed_as_expected(case: Case) -> bool:
    parsed = parse(case["input"], case["base"])
    if case.get("failure"):
        return parsed is None
    return parsed is not None and all(getattr(parsed, part) == case[part] for part in PARTS if part in case)


def test_a_name_is_its_own_name_for_every_url_of_the_corpora() -> None:
    files = (
        "marketplace_url_cases.dev",
        "wpt_urltestdata.dev",
        "tricky_urls_library_outputs",
        "url_normalization_cases.dev",
    )
    urls = [case["input"] for name in files for case in cases(f"url/{name}.json") if isinstance(case["input"], str)]
    names = [found for url in urls if not isinstance(found := canonical_link(url), RefusedUrl)]
    assert len(names) > 300
    again = [canonical_link(found.url_norm) for found in names]
    assert [each for each in again if isinstance(each, RefusedUrl)] == []
    assert [each.url_norm for each in again if not isinstance(each, RefusedUrl)] == [each.url_norm for each in names]


def test_canonicalising_agrees_with_w3lib_where_both_have_the_same_task() -> None:
    wrong = []
    for case in cases("url/url_normalization_cases.dev.json"):
        if case["function"] != "canonicalize_url" or case["kwargs"] or not case["input"].startswith("http"):
            continue
        found = canonical_link(case["input"])
        if not isinstance(found, RefusedUrl) and found.url_norm != case["expected"]:
            wrong.append((case["input"], case["expected"], found.url_norm))
    assert wrong == []
