"""Reads a page without better data: price and stock that people see, prices in its scripts, the shop's number."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.documents import loads, value_of
from mistnet.shops.extraction.facts import PageFinding, PriceCandidate, finding
from mistnet.shops.extraction.outline import JOINT, Outline
from mistnet.shops.extraction.price_text import ParsedPrice, numerals, parse_price, plain
from mistnet.shops.extraction.price_words import name_says, says_any
from mistnet.shops.extraction.surroundings import path_of
from mistnet.shops.extraction.words import availability_words
from mistnet.shops.model import Availability, Evidence, Price

_PICTURE: Final = re.compile(
    r"image|photo|picture|immagine|bild|imagen|imagem|obraz|фото|圖片|图片|画像", re.IGNORECASE
)
_PRICE_WORD: Final = re.compile(
    r"(?:price|[价價]|\bfor|preis|prix|precio|harga|giá|ราคา|cena|prezzo)\s*[:：]?\s*$", re.IGNORECASE
)


def described_price(tags: Mapping[str, str], *, url: str, hint: str | None) -> Iterable[PageFinding]:
    """The price in the page's description, where some shops have it alone."""
    for name in ("og:description", "description"):
        said = plain(tags.get(name, "")[:300])
        labelled = [each for each in numerals(said) if each.is_money and _PRICE_WORD.search(said[: each.reach[0]])]
        found = parse_price(said[labelled[0].reach[0] :][:40], currency_hint=hint, site=url) if labelled else None
        if isinstance(found, ParsedPrice) and found.currency:
            price = Price(amount=found.min, currency=found.currency)
            features = {"described": 1.0}
            return finding("price", price, path=f"meta[{name}]", snippet=said, confidence=0.4, features=features)
    return ()


def visible_stock(page: Outline) -> Iterable[PageFinding]:
    """The stock as the page states it; else a buy button means in stock."""
    for spot in page.stocks:
        term = None if spot.aside or _PICTURE.search(spot.text) else availability_words(spot.text)
        if term:
            return finding("availability", term, path=path_of(page, spot.place), snippet=spot.text, confidence=0.65)
    begin = next((page.end[each.place] for each in page.headings if each.tag == "h1"), 0)
    buttons = [each for each in page.buttons if not each.aside]
    buys = next((each for each in buttons if says_any(each.text, "buy")), None)
    notifies = next((each for each in buttons if page.first[each.place] >= begin and each is not buys), None)
    # A thing that is sold out has a button to be told of its return, and things below it have buttons to buy them.
    if buys and not (notifies and page.first[buys.place] > page.first[notifies.place] + _SAME_THING):
        path = path_of(page, buys.place)
        return finding("availability", Availability.IN_STOCK, path=path, snippet=buys.text, confidence=0.5)
    said = notifies.text if notifies and not says_any(notifies.text, "buy") else _sold_out_line(page, begin)
    gone = Availability.OUT_OF_STOCK if said else None
    return finding("availability", gone, path="visible:line", snippet=said, confidence=0.5)


def _sold_out_line(page: Outline, begin: int) -> str | None:
    """A short line below the heading that says nothing but that the thing is sold out."""
    for line in page.text[begin : begin + _BELOW].split("\n") if begin else ():
        said = " ".join(line.replace(JOINT, " ").split())
        if 1 < len(said) <= _LONGEST_LINE and availability_words(said) is Availability.OUT_OF_STOCK:
            return said
    return None


_SAME_THING: Final = 400
_BELOW: Final = 800
_LONGEST_LINE: Final = 40


_SEEN: Final = 0.5
# Amounts beside the price, by the word or the name that says what they are.
_SHOWN: Final = {
    "unit_price": ("left_unit", "right_unit", "name_unit"),
    "instalment": ("left_instalment", "right_instalment", "name_instalment"),
    "shipping": ("left_shipping", "right_shipping"),
    "saving": ("left_saving", "right_saving"),
    "deposit": ("left_deposit", "right_deposit"),
    "net_price": ("left_net", "right_net"),
    "used_price": ("left_used", "right_used"),
}
_ELSEWHERE: Final = frozenset({"card", "linked", "related", "aside", "hidden", "struck"})


def shown_details(candidates: Sequence[PriceCandidate]) -> Iterator[Evidence]:
    """The first amount of each kind that people see beside the price."""
    for field, names in _SHOWN.items():
        for each in candidates:
            features = each.features.keys()
            if features & set(names) and not features & _ELSEWHERE:
                amount = f"{each.amount:f} {each.currency or ''}".strip()
                yield Evidence(field=field, path=each.path, snippet=amount, confidence=_SEEN)
                break


_QUOTE: Final = r"""(?:\\{0,3}["']|&quot;|&\#34;)?"""
# The letters that every such key holds come first: they are found fast.
_PRICE: Final = re.compile(
    rf"rice(?P<rest>[A-Za-z_]{{0,24}}){_QUOTE}\s{{0,2}}[:=]\s{{0,2}}"
    rf"(?:\{{\s{{0,9}}{_QUOTE}(?:amount|value|current|raw|sale|final|now|price){_QUOTE}\s{{0,2}}:\s{{0,2}})?{_QUOTE}"
    r"(?P<number>\d{1,9}(?!\d)(?:\.\d{1,4}|(?!\.\d)))(?![\d%]|,\d)"
)
_BEGINNING: Final = re.compile(r"-?\w*$")
_MOST: Final = 400
_MOST_AMOUNTS: Final = 24
_FEW: Final = 3
_LD: Final = "ld+json"
_FORMER: Final = frozenset({"old", "saving", "shipping", "unit", "instalment", "from"})
_CENTS: Final = 100
_OF_CENTS: Final = frozenset({"few", "named"})


def embedded_candidates(html: str, headings: Sequence[str] = ()) -> Iterator[PriceCandidate]:
    """One candidate for each amount that keys named for a price hold, in the order in which they first stand there.

    `headings` are the page's own names: the last name before a price says whose it is.
    """
    wanted = [frozenset(words) for each in headings if len(words := _WORD.findall(each.casefold())) > 1]
    named: set[Decimal] = set()
    # JSON-LD is read elsewhere, and would agree with itself: these parts of the page are left out.
    read: list[tuple[int, int]] = []
    while (begin := html.find(_LD, read[-1][1] if read else 0)) >= 0:
        end = html.find("</script", begin)
        read.append((begin, end if end >= 0 else len(html)))
    keys: dict[Decimal, list[str]] = {}
    for found in islice(_PRICE.finditer(html), _MOST):
        place = bisect_right(read, (found.start(), len(html)))
        amount = Decimal(found["number"])
        beginning = _BEGINNING.search(html[max(found.start() - 24, 0) : found.start()])
        is_attribute = beginning is None or beginning[0].startswith("-")
        if amount > 0 and not is_attribute and not (place and found.start() < read[place - 1][1]):
            keys.setdefault(amount, []).append(f"{beginning[0] if beginning else ''}rice{found['rest']}")
            if amount not in named and _is_named(html[max(found.start() - _NAME_REACH, 0) : found.start()], wanted):
                named.add(amount)
    few = ["few"] if len(keys) <= _FEW else []
    for order, (amount, names) in enumerate([*keys.items()][:_MOST_AMOUNTS]):
        said = [*few, *(["first"] if order == 0 else []), *(["again"] if len(names) > 1 else [])]
        if all(name_says(name).roles & _FORMER for name in names):
            said.append("former")
        elif amount in named:
            said.append("named")
        yield _candidate(amount, names[0], amount, ["script", *(f"script_{each}" for each in said)])
        if amount >= _CENTS and amount == amount.to_integral_value():
            yield _candidate(
                amount / _CENTS,
                names[0],
                amount,
                ["script_cents", *(f"script_{each}_cents" for each in said if each in _OF_CENTS)],
            )


def _is_named(before: str, wanted: Sequence[frozenset[str]]) -> bool:
    """Whether the last name before a price is that of the page, but for one word of four. To hold it is not enough."""
    names: list[str] = _NAME.findall(before)
    if not names:
        return False
    said = names[-1]
    with suppress(ValueError):
        said = str(loads(f'"{said}"')) if "\\" in said else said
    words = frozenset(_WORD.findall(said.casefold()))
    return any(words == each or (len(words & each) >= _MOST_WORDS and len(words ^ each) <= 1) for each in wanted)


_NAME: Final = re.compile(r"""(?:[nN]ame|[tT]itle)\\?["']?\s?:\s?\\?["']((?:[^"'\\]|\\u[0-9a-fA-F]{4}|\\/){3,200})""")
_WORD: Final = re.compile(r"[^\W_]+")
_NAME_REACH: Final = 600
_MOST_WORDS: Final = 3


def _candidate(amount: Decimal, name: str, written: Decimal, features: Sequence[str]) -> PriceCandidate:
    return PriceCandidate(
        amount=amount, path=f"script:{name}", snippet=f"{name}: {written}", features=dict.fromkeys(features, 1.0)
    )


_LABELLED: Final = 0.8
_MARKED: Final = 0.75
_SCRIPTED: Final = 0.7
_ADDRESSED: Final = 0.5
_SHORTEST: Final = 6
_NUMBER: Final = r"(?P<number>(?=[\w./-]{0,29}\d)[A-Za-z0-9][\w./-]{2,28}[A-Za-z0-9])"
_LABEL: Final = re.compile(
    r"""(?<!\w)(?:
      SKU|Art(?:ikel|icle|\.)?[\s.-]*(?:Nr|No|Nummer|Number|N°|Code)|Artikelnr|Best(?:ell)?[\s.-]*(?:Nr|Nummer)
    | (?:Item|Product|Model|Style|Part|Catalog(?:ue)?|Stock|Prod)[\s.-]*(?:No|Nr|Number|Code|ID|\#)|(?:Item
        |Model)\s?\#|Web\s?ID
    | R[ée]f(?:[ée]rence|er[êe]ncia|\.)?|C[óo]d(?:igo|ice|e|\.)?(?:\s+(?:de|do|del|art[íi]culo|produto|producto
        |prodotto|produs))*
    | Cod(?:ul)?\s+produs|Kód(?:\s+produktu)?|Kod(?:\s+produktu)?|Koda(?:\s+izdelka)?|Šifra|Nr\s+(?:ref|kat
        |art)\w*|Preces\s+kods|Tootekood|Varenr|Varenummer|Artnr|Tuotenumero|Cikkszám
    | Артикул|Код(?:\s+товара)?|商品[编編][号號]|商品[代型][号號碼码]|[货貨][号號]|[产產]品[编編][号號]|品番
        |商品コード|상품번호|Mã\s+(?:sản\s+phẩm|SP
        |hàng)|รหัส(?:สินค้า)?|Kode\s+(?:produk|barang)|Ad\s?ID|post\s+id|listing\s+id
    )\s*(?:[:：#.]|(?<=[号號碼码])|Nr\.?|\s)\s*[:：#–-]?\s*"""
    + _NUMBER,
    re.VERBOSE | re.IGNORECASE,
)
_MARKUP: Final = (
    '[itemprop="sku"], [itemprop="productID"], [itemprop="productId"], [data-sku], [data-product-sku], '
    '[data-item-sku], input[name="sku"], input[name="product_sku"], [class="sku"], [id="sku"]'
)
_REFERENCE: Final = (
    '[class*="product-code"], [class*="productCode"], [class*="product-sku"], [class*="productSku"], '
    '[class*="product-ref"], [class*="article-n"], [class*="articleN"], [class*="item-number"], [class*="itemNumber"], '
    '[data-qa-qualifier*="reference"], [data-testid*="sku"], [data-testid*="product-code"]'
)
# Looks back at the first quotation mark: a search for letters is several times as fast as one for either mark.
_IN_SCRIPT: Final = re.compile(r"sku(?<=[\"']sku)[\"']\s*:\s*[\"']([\w./-]{3,40})[\"']")
_QUERY: Final = ("sku", "childSku", "skuId", "pid", "productId", "product_id", "itemId", "item_id", "goods_id", "id")
_TAIL: Final = re.compile(r"(?:^|[^0-9])(?P<number>(?<![A-Za-z])[A-Z]\d{5,14}|\d{5,14})$")
_DIGITS: Final = re.compile(r"\d+")
_ENDING: Final = re.compile(r"\.(?:html?|php|aspx?|jsp|do)$", re.IGNORECASE)
_REACH: Final = 60_000
_BEFORE, _BEHIND = 120, 60
"""A label with its number is at most this long before and after a digit."""


def identity_findings(tree: LexborHTMLParser, url: str, said: str) -> Iterator[PageFinding]:
    """The shop's number of the product: in markup, by a label on the page, or in the address."""
    for node in tree.css(_MARKUP)[:3]:
        attributes = node.attributes
        named = attributes.get("data-sku") or attributes.get("data-product-sku") or attributes.get("data-item-sku")
        value = (named or value_of(node)).strip()
        if found := re.fullmatch(rf"(?:\D{{0,20}}[:\s#])?{_NUMBER}", value):
            yield from finding("sku", found["number"], path="markup:sku", snippet=value, confidence=_MARKED)
            break
    # Elements whose name promises a number and that hold nothing else.
    for node in tree.css(_REFERENCE)[:5]:
        held = " ".join(node.text(deep=True, separator=" ")[:80].split())
        if found := re.fullmatch(rf"(?:[^\d:#]{{0,24}}[:\s#-]\s?)?{_NUMBER}", held):
            yield from finding("sku", found["number"], path="visible:reference", snippet=held, confidence=_LABELLED)
            break
    yield from labelled_number(said)
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
    except ValueError:
        return
    for name in _QUERY:
        value = query.get(name, "")
        if re.fullmatch(r"[A-Za-z]{0,3}\d{4,20}", value):
            yield from finding("sku", value, path=f"url:{name}", snippet=f"{name}={value}", confidence=_ADDRESSED)
            return
    for segment in reversed(unquote(parts.path).split("/")):
        if found := _TAIL.search(_ENDING.sub("", segment)):
            yield from finding("sku", found["number"], path="url:path", snippet=segment, confidence=_ADDRESSED)
            return


def scripted_number(html: str) -> Iterable[PageFinding]:
    """The number in the page's scripts, if there is exactly one."""
    found = set(_IN_SCRIPT.findall(html))
    return (
        finding("sku", found.pop(), path="script:sku", snippet="sku", confidence=_SCRIPTED) if len(found) == 1 else ()
    )


def without_variant(known: PageFinding, said: str) -> Iterable[PageFinding]:
    """`K55121-2` in the data and `K55121` on the page: the page names the product, the data a variant of it."""
    number = str(known.value)
    if "-" not in number and "_" not in number:
        return ()
    for each in labelled_number(said):
        visible = str(each.value)
        if len(visible) >= _SHORTEST and number.startswith((f"{visible}-", f"{visible}_")):
            return finding("sku", visible, path=each.path, snippet=each.snippet, confidence=0.96)
    return ()


def labelled_number(said: str) -> Iterable[PageFinding]:
    """The first labelled number in the visible text."""
    said = said[:_REACH]
    for begin, end in _around_digits(said):
        found = _LABEL.search(said, begin, end)
        if found:
            return finding("sku", found["number"], path="visible:label", snippet=found[0], confidence=_LABELLED)
    return ()


def _around_digits(text: str) -> Iterator[tuple[int, int]]:
    """The parts of a text near its digits: a label elsewhere has no number."""
    begin = end = 0
    for digits in _DIGITS.finditer(text):
        if digits.start() - _BEFORE > end:
            if end:
                yield begin, end
            begin = digits.start() - _BEFORE
        end = digits.end() + _BEHIND
    if end:
        yield max(begin, 0), end
