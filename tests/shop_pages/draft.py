"""One page in the making: its product, its shop's habits of naming and writing, and what was put where."""

from collections import defaultdict
from decimal import Decimal
from random import Random
from typing import Final

from markupsafe import Markup

from tests.shop_pages.locales import Locale

ROLES: Final = {
    "price": "price|product-price|current-price|prod price|preis|amount|sale price|pdp price|our price|value",
    "was": "was|old-price|list-price|price-before|regular|rrp|compare-at|strike|former|crossed",
    "title": "title|product-title|name|heading|prod name|pdp title|item name",
    "buy": "add-to-cart|buy|btn-cart|addtobag|atc|order button|purchase|cta",
    "stock": "stock|availability|in-stock|status|delivery-status|lager",
    "sku": "sku|product-code|ref|item-number|article|code|meta",
    "card": "card|product-card|tile|item|prod|teaser|box|col-3",
    "cardprice": "price|card-price|amount|tile-price|cost|value",
    "related": "related|recommendations|also-like|carousel|cross-sell|similar|slider|more products|row",
    "cart": "mini-cart|cart-total|basket|cart-summary|bag count|header-cart",
    "text": "description|body-text|content|details|info|copy|richtext",
    "box": "product|product-detail|pdp|main|wrapper|product-info|summary|buybox|content-inner",
    "ship": "shipping|delivery|shipping-info|usp|postage|note",
    "note": "note|hint|info|extra|sub|small-print|finance|meta",
    "unit": "unit-price|base-price|per-unit|grundpreis|note|ppu",
    "top": "announcement|promo-bar|topbar|banner|notice|usp-bar",
    "gallery": "gallery|images|media|photos|slides|visual",
    "menu": "nav|menu|main-nav|mega-menu|navigation|links",
    "side": "sidebar|aside|left-col|filters|col-md-3|secondary",
    "foot": "footer|site-footer|bottom|ft|foot-links",
    "review": "review|rating|stars|feedback|opinions",
}
STYLES: Final = ("plain", "bem", "camel", "module", "hashed", "utility", "plain")
UTILITIES: Final = (
    "flex items-center gap-2",
    "text-2xl font-bold",
    "mt-4 mb-2",
    "px-3 py-2 rounded",
    "text-sm text-gray-600",
    "grid grid-cols-4",
    "w-full lg:w-1/2",
    "border-b pb-4",
    "text-lg leading-6",
    "hidden md:block",
    "inline-flex",
    "text-red-600 font-semibold",
)
CENTS_APART: Final = (
    "<span>{0}</span> <span>{1}</span> <span>{2}</span>{3}",
    "{0}{1}<sup>{2}</sup>{3}",
    "{0}{1}.<sup>{2}</sup>{3}",
    "<span>{0}</span><span>{1}</span><sup>{2}</sup>{3}",
    '<span class="a-price-symbol">{0}</span><span class="a-price-whole">{1}<i>{4}</i></span><sup>{2}</sup>{3}',
    "{0}<strong>{1}</strong>{4}<small>{2}</small>{3}",
    '{0}{1}<span class="cents">{2}</span>{3}',
    "{0}{1}{4}<span>{2}{3}</span>",
)
"""Before the number, its whole part, its cents, behind it, and the decimal mark."""
MADE_UP: Final = ("CEmiEU", "1vAtk9", "Xoff2s", "qTaxB", "kitRc", "exZ0m")
"""Ends of class names that programs make up. By chance a word may stand in them that says what an amount is."""
LETTERS: Final = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


class Draft:
    """The choices of one page. The same seed makes the same page."""

    def __init__(self, rng: Random, locale: Locale) -> None:
        self.rng = rng
        self.locale = locale
        self.words = locale.words
        self.style = rng.choice(STYLES)
        self.prefix = rng.choice(["c", "o", "pdp", "prod", "shop", "ui", "x", "item", "sf", "page"])
        self.mark = rng.choice(locale.marks)
        self.bare = rng.random() < 0.15
        self.space = rng.choice([" ", "\u00a0", "\u202f"])
        self.split = rng.choice(["whole", "whole", "whole", "mark", "twice"])
        self.shop = "".join(rng.choice(["ka", "lo", "ri", "ten", "mo", "vel", "sa", "nor", "bi", "du"]) for _ in "abc")
        self.host = f"www.{self.shop}.{locale.tld}"
        self.brand = rng.choice(["Nordvik", "Halden", "Ruva", "Solenne", "Okari", "Tamsin & Co", "Brunel", "Mirat"])
        self.title = self.name()
        self.price: Decimal | None = locale.amount(rng, high=200_000 if rng.random() < 0.1 else 2_000)
        self.was: Decimal | None = None
        self.in_stock: bool | None = True
        self.sku: str | None = self.number()
        self.in_data: Decimal | None = self.price
        self.data = "none"
        self.small_cents = False
        self.slots: dict[str, list[Markup]] = defaultdict(list)
        self._classes: dict[str, str] = {}

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def say(self, key: str) -> str:
        """The shop's word for something; of several, always the same one."""
        said = self.words[key]
        if isinstance(said, str):
            return said
        return str(said[sum(map(ord, self.shop + key)) % len(said)])

    def name(self) -> str:
        noun, adjective = (self.rng.choice(self.words[key].split("|")) for key in ("nouns", "adjectives"))
        model = self.rng.choice(
            [
                "",
                "",
                f" {self.rng.randrange(2, 90)} cm",
                f" {self.rng.choice('ABKMX')}{self.rng.randrange(10, 900)}",
                " Pro",
            ]
        )
        return f"{adjective} {noun}{model}" if self.chance(0.5) else f"{noun} {adjective}{model}"

    def number(self) -> str:
        letters = "".join(self.rng.choices("ABCDEFGHKLMNPRSTUVWX", k=self.rng.choice([2, 3])))
        return self.rng.choice(
            [f"{letters}-{self.rng.randrange(1_000, 99_999)}", f"{self.rng.randrange(100_000, 99_999_999)}"]
        )

    def prose(self, sentences: int) -> str:
        """Running text without a price, though with numbers in it."""
        known = [self.rng.choice(self.words["prose"].split("|")) for _ in range(sentences)]
        known = [
            f"{each} ({self.rng.randrange(2, 400)} {self.rng.choice(['cm', 'g', 'ml'])})" if self.chance(0.15) else each
            for each in known
        ]
        return ". ".join(each[:1].upper() + each[1:] for each in known) + "."

    def menu(self) -> list[str]:
        known = str(self.words["menu"]).split("|")
        return self.rng.sample(known, k=self.rng.randrange(6, len(known)))

    def other(self, low: float, high: float) -> Decimal:
        """An amount that is this share of the price, and not the price."""
        base = self.price or self.locale.amount(self.rng)
        while True:
            found = self.locale.rounded(base * Decimal(self.rng.uniform(low, high)), self.rng)
            if found not in (self.price, self.was):
                return found
            low, high = low * 0.9, high * 1.1

    def css(self, role: str) -> Markup:
        """The class attribute of an element of this role, in the naming habit of the shop."""
        if role not in self._classes:
            self._classes[role] = self._named(role)
        return Markup('class="{}"').format(self._classes[role])

    def _named(self, role: str) -> str:
        name = self.rng.choice(ROLES[role].split("|"))
        flat = name.replace(" ", "-")
        camel = "".join(each.capitalize() for each in flat.split("-"))
        tail = self.rng.choice(MADE_UP) if self.chance(0.2) else "".join(self.rng.choices(LETTERS, k=5))
        match self.style:
            case "bem":
                return f"{self.prefix}-{self.rng.choice(['block', 'product', 'view'])}__{flat}"
            case "camel":
                return f"{self.prefix}{camel}"
            case "module":
                return f"{camel}_{self.rng.choice(['root', 'wrapper', 'inner'])}__{tail}"
            case "hashed":
                return f"css-{tail.lower()} e{tail[::-1].lower()}{self.rng.randrange(9)}"
            case "utility":
                return self.rng.choice(UTILITIES)
        return flat if self.chance(0.7) else f"{self.prefix}-{flat} {flat}"

    def said(self, amount: Decimal) -> str:
        """An amount of money as text."""
        written = self.locale.write(amount, bare=self.bare)
        if self.mark.endswith(":-"):
            written = self.locale.write(amount, bare=True)
            return f"{written} kr" if self.locale.number[1] in written else f"{written}:-"
        return self.mark.replace("{}", written).replace(" ", self.space)

    def fill(self, key: str, amount: Decimal | None = None, number: int | None = None) -> str:
        """A phrase with its amount and number."""
        said = self.rng.choice(self.words[key]) if isinstance(self.words[key], list) else self.words[key]
        said = said.replace("#", str(number)) if number is not None else said
        return str(said.replace("{}", self.said(amount)) if amount is not None else said)

    def money(self, amount: Decimal) -> Markup:
        """An amount of money as markup, the way this shop does it everywhere."""
        said = self.said(amount)
        before, _, behind = self.mark.partition("{}")
        if self.split == "mark" and not self.mark.endswith(":-"):
            name = self.rng.choice(["currency", "symbol", "cur", "money-sign"])
            sign = Markup('<span class="{}">{}</span>')
            left = sign.format(name, before) if before.strip() else before
            right = sign.format(name, behind) if behind.strip() else behind
            return Markup("{}{}{}").format(left, self.locale.write(amount, bare=self.bare), right)
        if self.split == "twice":
            hidden = self.rng.choice(["visually-hidden", "sr-only", "a-offscreen", "screen-reader-text"])
            return Markup('<span class="{}">{}</span><span aria-hidden="true">{}</span>').format(hidden, said, said)
        return Markup("{}").format(said)

    def cents_apart(self, amount: Decimal) -> Markup:
        """Cents set small, with or without their mark, as posters in shop windows do."""
        whole, mark, cents = self.locale.write(amount).rpartition(self.locale.number[1])
        if self.locale.decimals != 2 or not mark:
            return self.money(amount)
        before, _, behind = self.rng.choice([each for each in self.locale.marks if ":-" not in each]).partition("{}")
        forms = CENTS_APART if self.locale.number[0] != " " else CENTS_APART[1:]
        form = self.rng.choice(forms)
        return Markup(form).format(before, whole, cents, behind, mark)

    def shown(self, amount: Decimal | None) -> Markup:
        """The price where it is shown largest. A product without one says nothing there."""
        if amount is None:
            return Markup("")
        return self.cents_apart(amount) if self.small_cents else self.money(amount)

    def parts(self, amount: Decimal | None) -> tuple[str, str, str]:
        """Whole part, decimal mark and cents, as some shops set them in elements of their own."""
        if amount is None:
            return "", "", ""
        whole, mark, cents = self.locale.write(amount).rpartition(
            self.locale.number[1] if self.locale.decimals else "\0"
        )
        return (whole, mark, cents) if mark else (cents, "", "")

    def sign(self) -> str:
        return self.mark.replace("{}", "").replace(":-", "kr").strip()

    def hundredths(self, amount: Decimal | None) -> str:
        return "null" if amount is None else str(int(amount * 100))

    def put(self, slot: str, html: str, *values: object) -> None:
        """Put markup into one of the page's places; the values are escaped."""
        self.slots[slot].append(Markup(html).format(*values) if values else Markup(html))

    def slot(self, name: str) -> Markup:
        return Markup("\n").join(self.slots[name])
