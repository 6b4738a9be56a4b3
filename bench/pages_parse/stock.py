"""Product pages to read: saved ones where a folder of them is named, else made up in the shapes shops use."""

import gzip
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

WORDS = "kettle oak lamp linen cotton steel chair blue light travel garden classic winter compact wool".split()  # noqa: SIM905
FILLING = 220


class Page(NamedTuple):
    url: str
    body: bytes


def pages(most: int) -> Sequence[Page]:
    """The same pages each time, in the same order."""
    saved = list(_saved(most))
    return saved or [made(number) for number in range(min(most, 40))]


def _saved(most: int) -> Sequence[Page]:
    folder = Path(os.environ.get("MISTNET_TEST_CORPORA", "/nowhere")) / "pages"
    truth = folder / "zyte_dev.ground_truth.json"
    if not truth.exists():
        return ()
    named = sorted(json.loads(truth.read_text()).items())[:most]
    return [
        Page(known["url"], gzip.decompress((folder / "zyte_dev" / f"{name}.html.gz").read_bytes()))
        for name, known in named
    ]


def made(number: int) -> Page:
    """A page of about 200 KB: a third with JSON-LD, a third with microdata, a third with nothing but words."""
    chance = random.Random(number)
    title, price = " ".join(chance.sample(WORDS, 4)), f"{chance.randrange(5, 900)}.{chance.randrange(100):02}"
    menu = "".join(f'<li class="menu-item"><a href="/c/{each}">{_words(chance, 3)}</a></li>' for each in range(200))
    related = "".join(
        f'<div class="product-tile"><h3>{_words(chance, 5)}</h3>'
        f'<span class="price">${chance.randrange(900)}.00</span></div>'
        for _ in range(60)
    )
    text = "".join(f'<p class="text-{each % 7}"><span>{_words(chance, 80)}</span></p>' for each in range(FILLING))
    html = (
        f"<html><head><title>{title}</title>{_data(number, title, price)}</head><body><nav><ul>{menu}</ul></nav><main>"
        f"<h1>{title}</h1>{_offer(number, title, price)}<button>Add to cart</button>{text}</main>"
        f'<section class="related">{related}</section></body></html>'
    )
    return Page(f"https://shop{number}.example.com/p/{number + 10_000}", html.encode())


def _words(chance: random.Random, many: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(many))


def _data(number: int, title: str, price: str) -> str:
    if number % 3:
        return ""
    offer = {"@type": "Offer", "price": price, "priceCurrency": "USD", "availability": "https://schema.org/InStock"}
    data = {"@context": "https://schema.org", "@type": "Product", "name": title, "sku": f"S-{number}", "offers": offer}
    return f'<script type="application/ld+json">{json.dumps(data)}</script>'


def _offer(number: int, title: str, price: str) -> str:
    if number % 3 != 1:
        return f'<div class="price-now">${price}</div>'
    return (
        f'<div itemscope itemtype="https://schema.org/Product"><b itemprop="name">{title}</b><div itemprop="offers" '
        f'itemscope itemtype="https://schema.org/Offer"><span itemprop="price" content="{price}">${price}</span>'
        '<meta itemprop="priceCurrency" content="USD"></div></div>'
    )
