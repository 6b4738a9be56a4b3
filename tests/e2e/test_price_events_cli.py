"""Price watches as an operator meets them: the real commands, simulated shops, a receiver that checks signatures."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal

from mistnet.sim.shelf import BY_CANONICAL
from tests.e2e.conftest import CommandLine, until
from tests.e2e.slips import list_misreported
from tests.e2e.test_crawling_cli import EBAY, crawling
from tests.e2e.test_events import running
from tests.receivers import SECRET, Receiver, receiver_apart
from tests.simulated import ask_world, tell_world, world_served

DAY_SECONDS = 86_400


def advance(sim_url: str, days: int) -> None:
    tell_world(sim_url, "advance", seconds=days * DAY_SECONDS)


def price_at(sim_url: str) -> Decimal:
    now = datetime.fromisoformat(ask_world(sim_url, "now")["now"])
    return BY_CANONICAL[EBAY].price(now)


def stock(command: CommandLine) -> None:
    """A link as a post would have brought it, visited twice."""
    command.sql(
        "INSERT INTO links (url_norm, url, host, lane, platform, kind, state, item_id, first_seen_at) "
        "VALUES (:url, :url, 'www.ebay.com', 'ebay', 'ebay', 'item', 'new', '155932418766', "
        "'2026-03-01 00:00:00.000000')",
        url=EBAY,
    )
    assert command.ok("links", "crawl", "--json").json["created"] == 1
    work(command)
    command.ok("products", "refresh", EBAY)
    work(command)


def work(command: CommandLine) -> None:
    command.ok("work", "--lanes", "ebay", "--until-idle")


@contextmanager
def shop_with_receiver(command: CommandLine) -> Iterator[tuple[str, Receiver]]:
    with world_served(seed=5) as sim_url, receiver_apart() as readers:
        hooks = {"readers": {"url": readers.url, "secret": SECRET, "events": ["price.changed", "price.below_target"]}}
        command.settings |= {
            **crawling(sim_url, "ebay"),
            "MISTNET_CRAWL_SECOND_LOOK_SECONDS": "0.5",
            "MISTNET_WEBHOOKS": json.dumps(hooks),
        }
        yield sim_url, readers


def test_a_change_that_lasts_reaches_a_receiver_once_and_signed(on_postgres: CommandLine) -> None:
    with shop_with_receiver(on_postgres) as (sim_url, readers):
        stock(on_postgres)
        before = price_at(sim_url)
        made = on_postgres.ok("prices", "watch", "--product", EBAY, "--change", "0.5", "--json").json
        assert made["added"]
        assert Decimal(made["watch"]["known"]["amount"]) == before
        while abs(price_at(sim_url) - before) * 200 <= before:
            advance(sim_url, 5)
        after = price_at(sim_url)
        on_postgres.ok("products", "refresh", EBAY)
        work(on_postgres)
        with running(on_postgres, on_postgres.folder / "log"):
            until(lambda: readers.taken)
        (got,) = readers.taken
        assert got.signed_with(SECRET)
        said = got.json
        assert (said["kind"], said["channel"]) == ("price.changed", "data")
        assert said["subject"] == f"product:{said['payload']['product_id']}"
        told = said["payload"]
        assert (Decimal(told["before"]), Decimal(told["after"])) == (before, after)
        assert (told["url"], told["source"], told["watch_id"]) == (EBAY, "ebay", made["watch"]["id"])
        assert told["first_look_at"] < told["second_look_at"]
        (line,) = on_postgres.ok("prices", "watches", "--json").json["watches"]
        assert (line["standing"], line["events"]) == ("watching", 1)
        assert Decimal(line["known"]["amount"]) == after


def test_a_price_below_its_target_is_looked_at_again_and_told(on_sqlite: CommandLine) -> None:
    with shop_with_receiver(on_sqlite) as (sim_url, readers):
        stock(on_sqlite)
        arguments = ("--product", EBAY, "--below", "99999.90", "--currency", "usd")
        made = on_sqlite.ok("prices", "watch", *arguments, "--json").json["watch"]
        assert (made["standing"], made["target"], made["currency"]) == ("unconfirmed", "99999.90", "USD")
        shown = on_sqlite.ok("prices", "watches").out
        assert "below 99,999.90 USD" in shown
        assert f"unconfirmed: one look saw {price_at(sim_url):,} USD" in " ".join(shown.split())
        work(on_sqlite)
        with running(on_sqlite, on_sqlite.folder / "log"):
            until(lambda: readers.taken)
        told = readers.taken[0].json["payload"]
        assert (told["target"], Decimal(told["after"])) == ("99999.90", price_at(sim_url))
        again = on_sqlite.ok("prices", "watch", *arguments).out
        assert "it existed already" in again
        assert "is gone" in on_sqlite.ok("prices", "unwatch", made["id"]).out
        assert on_sqlite.ok("prices", "watches", "--json").json["watches"] == []


SLIPS = (
    (("prices", "watch", "--change", "10"), "name a product with --product or an item with --item"),
    (("prices", "watch", "--product", "1"), "say one of --change"),
    (("prices", "watch", "--product", "1", "--change", "10", "--back-in-stock"), "say one of --change"),
    (("prices", "watch", "--product", "1", "--below", "9.90"), "--below AMOUNT and --currency CODE go together"),
    (("prices", "watch", "--product", "1", "--below", "cheap", "--currency", "TWD"), "'cheap' is not an amount"),
    (("prices", "watch", "--product", "99", "--change", "10"), "there is no product '99'"),
    (("prices", "watch", "--item", "99", "--change", "10"), "there is no item 99"),
    (("prices", "watch", "--item", "1", "--back-in-stock"), "many listings and no stock"),
    (("prices", "watch", "--item", "1", "--change", "-3"), "0.01 or more"),
    (("prices", "watch", "--item", "1", "--change", "nan"), "0.01 or more"),
    (("prices", "watch", "--item", "1", "--below", "9", "--currency", "dollars"), "three capital letters"),
    (("prices", "watches", "--product", "1", "--item", "1"), "not both"),
    (("prices", "unwatch", "7"), "there is no price watch 7"),
)


def test_a_slip_of_the_pen_is_one_line_with_the_next_step(on_sqlite: CommandLine) -> None:
    assert list_misreported(on_sqlite, SLIPS) == []


def test_a_watch_without_a_webhook_says_to_set_one(on_sqlite: CommandLine) -> None:
    on_sqlite.sql(
        "INSERT INTO products (platform, region, shop_id, item_id, url, first_seen_at, last_seen_at) VALUES "
        "('web', '', '', '1', 'https://shop.example/1', '2026-03-01 00:00:00.000000', '2026-03-01 00:00:00.000000')"
    )
    assert "set `webhooks`" in on_sqlite.ok("prices", "watch", "--product", "1", "--change", "10").out
