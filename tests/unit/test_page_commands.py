"""Prices and pages on the command line: lines in, lines out, and evidence people can read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mistnet.cli.main import app

PAGE = (
    '<script type="application/ld+json">{"@type":"Product","name":"Cup","sku":"C1",'
    '"offers":{"price":"12.50","priceCurrency":"EUR","availability":"InStock"}}</script>'
)
URL = "https://www.cups.example/cup"


def run(*arguments: str, given: str | bytes = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=given)


def test_each_line_is_answered_in_order() -> None:
    asked = [{"text": "NT$1,280"}, {"text": "已售 5,000 件"}, {"text": "$5-$9", "currency_hint": "TWD"}, {"text": None}]
    done = run("prices", "parse", given="\n".join(map(json.dumps, asked)))
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0
    assert told[0] == {"min": "1280", "max": "1280", "currency": "TWD", "kind": "ask"}
    assert (told[1]["min"], told[1]["reason"]) == (None, "a count, not a price")
    assert (told[2]["min"], told[2]["max"], told[2]["currency"]) == ("5", "9", "TWD")
    assert told[3]["min"] is None


def test_a_bad_line_is_answered_with_its_number_and_the_rest_goes_on() -> None:
    done = run("prices", "parse", given=b'{"text":"$5"}\nnonsense\n{"text":5}\n\xff\n{"text":"RM5"}\n')
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 3
    assert [each.get("line") for each in told] == [None, 2, 3, 4, None]
    assert told[4]["currency"] == "MYR"
    assert "3 of the lines" in done.stderr


def test_lines_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"text":"฿199"}\n')
    assert '"THB"' in run("prices", "parse", str(tmp_path / "lines")).stdout


@pytest.mark.parametrize("command", [("prices", "parse"), ("products", "extract", "--url", URL)])
def test_a_file_that_is_not_there_is_told_in_one_line(command: tuple[str, ...]) -> None:
    done = run(*command, "/nowhere/at/all")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "standard input" in done.stderr


def test_a_saved_page_becomes_a_product_and_an_offer_with_evidence(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    done = run("products", "extract", "--url", URL, str(tmp_path / "page.html"), "--json")
    told = json.loads(done.stdout)
    assert (told["verdict"], told["product"]["title"], told["product"]["sku"]) == ("offer", "Cup", "C1")
    assert (told["offer"]["amount"], told["offer"]["currency"]) == ("12.50", "EUR")
    assert {each["field"] for each in told["evidence"]} >= {"title", "sku", "amount", "currency", "availability"}


def test_people_see_where_each_value_was_found() -> None:
    shown = run("products", "extract", "--url", URL, "-", given=PAGE).stdout
    assert "json-ld:Product.offers.price" in shown
    assert "12.50" in shown


def test_a_block_is_said_to_be_one() -> None:
    done = run(
        "products", "extract", "--url", "https://shopee.tw/product/1/2", "-", "--json", given='{"error":90309999}'
    )
    told = json.loads(done.stdout)
    assert (told["verdict"], told["offer"], told["product"]["item_id"]) == ("blocked", None, "2")


def test_a_decision_is_explained_on_request(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    asked = ("products", "extract", "--url", URL, str(tmp_path / "page.html"))
    told = json.loads(run(*asked, "--explain", "--json").stdout)
    assert told["offer"]["amount"] == "12.50"
    assert {"page_kind", "confidence", "kind_evidence", "candidates"} <= told.keys()
    assert "page_kind" not in json.loads(run(*asked, "--json").stdout)
    shown = run(*asked, "--explain").stdout
    assert "what the page is" in shown or "nothing tells what the page is" in shown
    assert "amounts" in shown
