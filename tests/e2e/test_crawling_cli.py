"""From a post to a price: the commands against simulated networks and shops over HTTP."""

import json
from datetime import datetime
from decimal import Decimal

import pytest

from mistnet.sim.shelf import BY_CANONICAL, SHELF, Fate
from tests.e2e.conftest import QUICK, CommandLine
from tests.e2e.slips import is_one_line, list_misreported
from tests.simulated import ask_world, list_handles

SHOPS = ("shopee", "taobao", "ebay")
EBAY = "https://www.ebay.com/itm/155932418766"


def crawling(sim_url: str, lanes: str) -> dict[str, str]:
    return {
        **QUICK,
        "MISTNET_X_BASE_URL": sim_url,
        "MISTNET_CRAWL_LANES": lanes,
        "MISTNET_CRAWL_VIA": json.dumps({"*": sim_url}),
        "MISTNET_CRAWL_RATE_PER_MINUTE": "100000",
        "MISTNET_CRAWL_HOST_SECONDS": "0",
        "MISTNET_CRAWL_TIMEOUT_SECONDS": "2",
        "MISTNET_MAX_ATTEMPTS": "2",
    }


@pytest.fixture
def crawler(mistnet: CommandLine, sim_url: str) -> CommandLine:
    """The command with every lane crawled, on both databases."""
    mistnet.settings |= crawling(sim_url, "shopee,taobao,ebay,web")
    return mistnet


@pytest.fixture
def reader(on_sqlite: CommandLine, sim_url: str) -> CommandLine:
    """The command with no lane crawled, on SQLite."""
    on_sqlite.settings |= crawling(sim_url, "")
    return on_sqlite


def track_everybody(command: CommandLine, sim_url: str) -> None:
    command.ok("track", *list_handles(sim_url))
    assert command("work", "--until-idle").code in (0, 3), "people who are gone are gaps"


def test_what_people_link_to_becomes_products_with_prices(crawler: CommandLine, sim_url: str) -> None:
    track_everybody(crawler, sim_url)
    now = datetime.fromisoformat(ask_world(sim_url, "now")["now"])
    found = crawler.ok("products", "list", "--limit", "1000", "--json").json["products"]
    prices = {each["url"]: (each["amount"], each["currency"]) for each in found if each["amount"]}
    for thing in SHELF[:3]:
        amount, currency = prices[thing.canonical]
        assert (Decimal(amount), currency) == (thing.price(now), thing.currency)
    assert {each["platform"] for each in found} >= set(SHOPS)
    for each in crawler.sql("SELECT url_norm, count(*) AS n FROM links GROUP BY url_norm"):
        assert each["n"] == 1, each
    correct_a_price(crawler, next(each for each in found if each["currency"] == "USD"))


def correct_a_price(crawler: CommandLine, product: dict[str, str]) -> None:
    offer = product["offer_id"]
    said = crawler.ok("products", "correct", offer, "--price", "64.90", "--by", "kim", "--note", "cents apart").out
    assert said.startswith(f"offer {offer} is corrected: ")
    assert "64.90" in said
    (shown,) = (
        each for each in crawler.ok("products", "list", "--json").json["products"] if each["id"] == product["id"]
    )
    assert shown["amount"] == "64.90"
    (line,) = crawler.ok("products", "corrections", "--json").json["corrections"]
    assert (line["author"], line["note"], line["read_amount"]) == ("kim", "cents apart", product["amount"])
    case = json.loads(crawler.ok("products", "corrections", "--cases").out)
    assert (case["expected"]["amount"], case["read"]["amount"]) == ("64.90", product["amount"])
    doubted = crawler.ok("products", "report", "--json").json["offers"]
    assert all(each["doubt"] for each in doubted)
    assert crawler("products", "correct", offer).code == 2
    assert crawler("products", "correct", "999999", "--no-price").code == 2
    again = crawler.sql("SELECT link_id FROM crawls WHERE outcome = 'offer' GROUP BY link_id HAVING count(*) > 1")
    assert again == [], "one crawl for each link"
    short = crawler.ok("links", "show", "https://m.tb.cn/h.5xYzAbC?tk=Wk3d", "--json").json
    assert short["link"]["state"] == "resolved"
    assert short["posts"], "who posted it"
    named = crawler.ok("products", "show", "https://m.tb.cn/h.5xYzAbC", "--json").json
    assert named["product"]["url"] == "https://item.taobao.com/item.htm?id=673425618890"
    assert named["offers"][0]["evidence"]


@pytest.mark.in_turn(2)
def test_earlier_links_are_scanned_and_crawled_on_command(reader: CommandLine, sim_url: str) -> None:
    track_everybody(reader, sim_url)
    assert reader.sql("SELECT count(*) AS n FROM jobs WHERE kind = 'crawl'") == [{"n": 0}]
    first = reader.ok("links", "list", "--limit", "1000", "--json").json["links"]
    for looked in (("links", "list"), ("products", "list"), ("products", "of", list_handles(sim_url)[0])):
        told = reader.ok(*looked)
        assert "links wait: the lanes " in told.out, told
        assert "are not in `crawl_lanes`. Set MISTNET_CRAWL_LANES=" in told.out, told
    reader.sql("DELETE FROM post_links")
    reader.sql("DELETE FROM links")
    scanned = reader.ok("links", "scan", "--json").json
    assert scanned["links"] == len(first)
    again = reader.ok("links", "scan", "--json").json
    assert (again["links"], again["mentions"]) == (0, 0)
    assert {each["url_norm"] for each in reader.ok("links", "list", "--limit", "1000", "--json").json["links"]} == {
        each["url_norm"] for each in first
    }

    refused = reader("links", "crawl")
    assert refused.code == 2
    assert "crawl_lanes" in refused.err
    asked = reader.ok("links", "crawl", "--lane", "ebay", "--json").json
    assert asked["created"] == asked["links"] > 0
    assert reader("work", "--lanes", "ebay", "--until-idle").code in (0, 3)
    listed = reader.ok("products", "list", "--shop", "ebay", "--json").json["products"]
    assert EBAY in {each["url"] for each in listed}
    assert reader.ok("products", "list", "--shop", "shopee", "--json").json["products"] == []

    product = next(each for each in listed if each["url"] == EBAY)
    fresh = reader.ok("products", "refresh", product["id"], "--json").json
    assert (fresh["products"], fresh["created"]) == (1, 1)
    assert reader("work", "--lanes", "ebay", "--until-idle").code in (0, 3)
    shown = reader.ok("products", "show", EBAY, "--json").json
    assert [each["times_seen"] for each in shown["offers"]] == [2]
    rows = [json.loads(line) for line in reader.ok("products", "export").out.splitlines()]
    assert {row["url"] for row in rows} >= {EBAY}
    exported = next(row for row in rows if row["url"] == EBAY)
    assert exported["amount"] == shown["product"]["amount"]


def test_traps_on_the_open_web_end_with_their_reasons(reader: CommandLine, sim_url: str) -> None:
    reader.settings |= crawling(sim_url, "web")
    fates = (Fate.TRAP, Fate.HUGE, Fate.BOMB, Fate.LOOP, Fate.FORBIDDEN)
    traps = {thing.canonical: thing.fate for thing in SHELF if thing.fate in fates}
    reader.sql(
        "INSERT INTO links (url_norm, url, host, lane, platform, kind, state, first_seen_at) "
        "SELECT value, value, 'x', 'web', 'web', 'page', 'new', '2026-03-01 00:00:00.000000' "
        "FROM json_each(:traps)",
        traps=json.dumps(list(traps)),
    )
    assert reader.ok("links", "crawl", "--json").json["created"] == len(traps)
    assert reader("work", "--lanes", "web", "--until-idle").code == 3
    why = {BY_CANONICAL[row["key"]].fate: row["last_error"] for row in reader.sql("SELECT key, last_error FROM jobs")}
    assert "link-local" in why[Fate.TRAP]
    assert "larger than" in why[Fate.HUGE]
    assert "larger than" in why[Fate.BOMB]
    assert "redirects more than" in why[Fate.LOOP]
    assert "robots.txt" in why[Fate.FORBIDDEN]


SLIPS = (
    (("products", "show", "99"), "there is no product '99'"),
    (("products", "show", "https://shopee.tw/product/1/2"), "there is no product"),
    (("products", "refresh"), "name products, or pass --all"),
    (("products", "export", "--format", "parquet"), "--output FILE"),
    (("links", "show", "12"), "there is no link '12'"),
    (("links", "list", "--lane", "shoppe"), "Did you mean 'shopee'?"),
    (("links", "show", "not a url"), "there is no link"),
)
BAD_VARIABLES = (
    ("MISTNET_CRAWL_LANES", "shopee,amazn", "there is no lane 'amazn'"),
    ("MISTNET_CRAWL_PORTS", "80,http", "port numbers"),
    ("MISTNET_CRAWL_VIA", '{"*": "http://10.0.0.1"}', "not on this machine"),
    ("MISTNET_CRAWL_ROBOTS", "everywhere", "there is no lane"),
    ("MISTNET_CRAWL_RATES", '{"shopee": 0}', "greater than 0"),
)


def test_a_slip_of_the_pen_is_one_line_and_exit_code_2(on_sqlite: CommandLine) -> None:
    assert list_misreported(on_sqlite, SLIPS) == []


def test_a_setting_that_cannot_be_is_refused_with_its_name(on_sqlite: CommandLine) -> None:
    for name, value, said in BAD_VARIABLES:
        done = on_sqlite("links", "list", **{name: value})
        assert is_one_line(done, said), done
