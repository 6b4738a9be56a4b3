"""A shop that a plugin brings is named, crawled, read, listed and exported like the others: nothing in src knows it."""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from mistnet.app import App
from mistnet.cli.texts import UrlLine, name_link
from mistnet.kit.export import Format
from mistnet.queue.errors import BadPlugin
from mistnet.queue.model import Done
from mistnet.settings import load_settings
from mistnet.shops.model import CRAWL, PageVisit
from mistnet.shops.plugins import ShopPlugin, load_catalog, shops_of
from mistnet.shops.shop import Shop
from mistnet.shops.store.product_pages import export_offers
from mistnet.sources.reading import ReadingLimits, ReadsApart
from tests.apis import Api, open_api
from tests.databases import make_app
from tests.shops import WRITER, Pages, html, post, redirect
from tests.stepping import Stepping
from tests.support import TurnedClock

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-shop.md"
ITEM = "https://kiosk.example/item/42"
POSTED = "http://www.kiosk.example/item/42/blue-cup?utm_source=x"
CUP = html(b"<h1>Kiosk</h1><b class='kiosk-name'>Blue cup</b><p class='kiosk-price'>US$ 12.50</p>")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The shop of the how-to, in a module beside the settings."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    module = f"kiosk_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(example, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{module}:plugin"


class Street(Stepping):
    KIND: ClassVar = CRAWL

    async def write(self, *said: str) -> None:
        prepared = self.app.writers.prepare([WRITER, *(post(number, each) for number, each in enumerate(said, 1))])
        async with self.app.database.transaction() as connection:
            await self.app.writers.write(connection, prepared, self.clock.now())


@asynccontextmanager
async def open_street(url: str, plugin: str, pages: Pages) -> AsyncIterator[Street]:
    clock = TurnedClock()
    settings = load_settings(
        database_url=url, plugins=[plugin], crawl_lanes=["web"], crawl_host_seconds=0, crawl_rate_per_minute=100_000
    )
    app = make_app(settings, clock=clock, transports={"web": pages})
    try:
        async with app.sources.opened():
            yield Street(app, clock)
    finally:
        await app.database.close()


@pytest.mark.common_sql
async def test_links_to_a_new_shop_become_its_products(url: str, plugin: str, tmp_path: Path) -> None:
    pages = Pages({ITEM: CUP, "https://kio.example/abc": redirect(POSTED)})
    async with open_street(url, plugin, pages) as street:
        await street.write(f"so blue {POSTED}", "see kio.example/abc")
        outcomes = await street.all_steps()
        assert {type(each) for each in outcomes} == {Done}, outcomes
        found = await street.rows("SELECT url_norm, platform, lane, kind, state, item_id FROM links ORDER BY kind")
        assert [tuple(row) for row in found] == [
            (ITEM, "kiosk", "web", "item", "crawled", "42"),
            ("https://kio.example/abc", "kiosk", "web", "short", "resolved", None),
        ]
        (product,) = await street.rows("SELECT platform, item_id, title, sku, url FROM products")
        assert tuple(product) == ("kiosk", "42", "Blue cup", "42", ITEM)
        assert await export_offers(street.app.database, Format.CSV, tmp_path / "offers.csv") == 1
    (offer,) = csv.DictReader((tmp_path / "offers.csv").read_text(encoding="utf-8").splitlines())
    assert (offer["platform"], offer["item_id"], offer["amount"], offer["currency"]) == ("kiosk", "42", "12.50", "USD")


async def test_a_new_shop_keeps_its_links_inside_and_look_alikes_outside(url: str, plugin: str) -> None:
    pages = Pages({"https://kio.example/abc": redirect("https://elsewhere.example/item/42")})
    async with open_street(url, plugin, pages) as street:
        await street.write("see kio.example/abc and https://kiosk.example.evil.com/item/1")
        await street.all_steps()
        found = dict(await street.rows("SELECT kind, state FROM links"))
    assert found == {"short": "failed", "refused": "unresolved"}


async def test_a_new_shop_is_a_choice_of_the_api(url: str, plugin: str) -> None:
    async with open_api(url, plugins=[plugin]) as api:
        assert (await api.ok("/api/products?shop=kiosk"))["items"] == []
        assert "'kiosk' or 'web'" in (await refusal(api))["shop"]
    async with open_api(url) as api:
        assert (await api.get("/api/products?shop=kiosk")).status == 400
        assert "'goofish' or 'web'" in (await refusal(api))["shop"]


async def refusal(api: Api) -> dict[str, str]:
    return (await api.get("/api/products?shop=nonsense")).problems


def test_links_to_a_new_shop_have_names_without_an_app(plugin: str) -> None:
    answer = name_link(UrlLine(POSTED), load_catalog([plugin]))
    assert (answer["platform"], answer["kind"], answer["canonical"]) == ("kiosk", "item", ITEM)


async def test_the_processes_that_read_pages_know_a_new_shop(plugin: str) -> None:
    reader = ReadsApart(most=1, limits=ReadingLimits(seconds=60, megabytes=500), plugins=[plugin])
    try:
        facts = await reader.page(PageVisit(url=ITEM, final_url=ITEM, status=200, headers=CUP.headers, body=CUP.body))
    finally:
        await reader.close()
    assert (facts.title, facts.sku, str(facts.amount)) == ("Blue cup", "42", "12.50")


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        ({"name": "ebay"}, "there is a shop of this name already"),
        ({"name": "web"}, "there is a shop of this name already"),
        ({"hosts": {"ebay.de": None}}, "ebay.de belongs to another shop already"),
        ({"short_hosts": ("amzn.to",)}, "amzn.to belongs to another shop already"),
        ({"lane": "kiosk"}, "is crawled on the lane 'web'"),
    ],
)
def test_a_shop_that_cannot_be_told_from_another_is_refused(about: dict[str, object], problem: str) -> None:
    shop = msgspec.structs.replace(Shop(name="kiosk", hosts={"kiosk.example": None}), **about)
    with pytest.raises(BadPlugin, match=problem):
        shops_of([ShopPlugin(shops=[shop])])


def test_an_app_without_plugins_knows_the_shops_of_mistnet_alone(url: str) -> None:
    assert App(load_settings(database_url=url)).shops.names == ("shopee", "taobao", "ebay", "amazon", "goofish", "web")
