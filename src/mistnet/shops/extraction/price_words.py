"""What words and names around an amount say of it, in more than twenty languages: a table of phrases for each role."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

import msgspec

from mistnet.shops.extraction.words import LAST_DAYS

_TABLES: Final = tomllib.loads(files(__package__).joinpath("price_words.toml").read_text(encoding="utf-8"))
_ASIDE: Final = re.compile(
    r"relat|recommend|similar|carousel|slider|swiper|slick|upsell|cross-?sell|recent|viewed|also|bundle|accessor|sponsor|advert|"
    r"mini-?cart|basket-|cart-(?:item|total|summary|preview)|minibasket|minicart|shipping|delivery|versand|livraison|footer|"
    r"navbar|menu|\bnav\b|tooltip|review|compare-|wishlist|p13n|suggest|complement|others|warranty|insurance|finance|"
    r"instal?lment|loyalty|popular|bestseller-|trending|promo-?banner|coupon|voucher|modal|popup|product-?(?:list|grid|tile|card)s?|"
    r"product[-_]?item(?!-?info)|filter|facet|search|\bads?\b|side-?bar|news-?letter|banner",
    re.IGNORECASE,
)
_FILTER: Final = re.compile(r"filter|facet|range-?slider|slider-?range|price-?slider|refine", re.IGNORECASE)
_WORDS_OF_NAMES: Final = re.compile(r"[A-Z]?[a-zа-яčšžçğıöşüéèàñ]+|[A-Z]+(?![a-z])")
_PRICE_NAME: Final = re.compile(
    r"price|preis|precio|preco|preço|prix|prezzo|cena(?!rio)|pris(?![a-z])|harga|prijs|hinta|fiyat|kaina|cijena|цена|\bprc\b|amount",
    re.IGNORECASE,
)


_TOKENS: Final = re.compile(r"[-_:]+")
_SHORT_NAME: Final = 3
# Words that say something only together.
_COMPOUND: Final = re.compile(
    r"(?P<old>line[-_]?through)|(?P<extra>eco[-_]?(?:part|tax|fee|frais|contrib)|\bweee\b|\bdeee\b)", re.IGNORECASE
)
# `with-list-price` says what else there is.
_BESIDE: Final = re.compile(r"(?:with|has|no|is)[-_]", re.IGNORECASE)


class NameSays(msgspec.Struct, frozen=True):
    """What the class and the id of an element say of what it holds."""

    roles: frozenset[str]
    price: bool
    stock: bool
    aside: bool
    filter: bool = False


_NAMES_OF_ROLES: Final = {role: frozenset(names.split()) for role, names in _TABLES["names"].items()}
_ROLES_OF_NAMES: Final = {
    name: frozenset(role for role, names in _NAMES_OF_ROLES.items() if name in names)
    for name in frozenset().union(*_NAMES_OF_ROLES.values())
}
_NO_ROLES: Final[frozenset[str]] = frozenset()
_SILENT: Final = NameSays(_NO_ROLES, price=False, stock=False, aside=False)


@lru_cache(maxsize=16_384)
def name_says(name: str) -> NameSays:
    """What the class and the id say, each word of them by itself: pages have few of them in many combinations."""
    words = [said for word in name[:300].split() if (said := _word_says(word)) is not _SILENT]
    if not words:
        return _SILENT
    price = any(each.price for each in words)
    roles = _NO_ROLES.union(*(each.roles for each in words))
    # A word such as `price-filter` puts a price aside too; a word such as `product-card` does so for what is no price.
    aside = any(each.aside and (each.filter or not price) for each in words)
    return NameSays(roles, price=price, stock=any(each.stock for each in words), aside=aside)


@lru_cache(maxsize=16_384)
def _word_says(word: str) -> NameSays:
    if _BESIDE.match(word):
        return _SILENT
    compound = _COMPOUND.search(word)
    roles = {compound.lastgroup} if compound and compound.lastgroup else set()
    for part in _WORDS_OF_NAMES.finditer(word):
        known = _ROLES_OF_NAMES.get(part[0].lower())
        if known and (len(part[0]) > _SHORT_NAME or _is_by_itself(word, part)):
            roles |= known
    is_filter = bool(_FILTER.search(word))
    said = NameSays(
        frozenset(roles),
        price=bool(_PRICE_NAME.search(word)),
        stock="stock" in roles,
        aside=is_filter or bool(_ASIDE.search(word)),
        filter=is_filter,
    )
    return said if said.roles or said.price or said.aside else _SILENT


def _is_by_itself(word: str, part: re.Match[str]) -> bool:
    """A short word counts alone, or beside one for a price: `CEmiEU`, which a program made up, is no instalment."""
    begin, end = part.span()
    token = f"{_TOKENS.split(word[:begin])[-1]}{part[0]}{_TOKENS.split(word[end:])[0]}"
    return token == part[0] or bool(_PRICE_NAME.search(token))


class _Phrases:
    """Phrases by role, to be found among the words beside a number."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._phrases: dict[str, list[str]] = {}
        self._unspaced: list[tuple[str, str]] = []
        for role, written in table.items():
            for phrase in (" ".join(each.split()) for each in written.split("|")):
                if any(each >= "\u0e00" for each in phrase):
                    self._unspaced.append((phrase, role))
                self._phrases.setdefault(phrase, []).append(role)
        self._longest = max(len(each.split()) for each in self._phrases)

    def roles(self, words: list[str], text: str, nearest: int) -> frozenset[str]:
        """The roles of the phrases among some words, the longest first. Those of few letters count only next to it."""
        found: set[str] = set()
        start = 0
        while start < len(words):
            step = 1
            for length in range(min(self._longest, len(words) - start), 0, -1):
                phrase = " ".join(words[start : start + length])
                near = start == 0 if nearest == 0 else start + length == len(words)
                if (len(phrase) > _FEW_LETTERS or near) and (roles := self._phrases.get(phrase)):
                    found.update(roles)
                    step = length
                    break
            start += step
        if any(each >= "\u0e00" for each in text):
            known = [(phrase, role) for phrase, role in self._unspaced if phrase in text]
            found.update(
                role for phrase, role in known if not any(phrase != longer and phrase in longer for longer, _ in known)
            )
        return frozenset(found)


_WORD: Final = re.compile(r"[^\W_]+|[²³]")
_LEFT_PHRASES: Final = _Phrases(_TABLES["left"])
_RIGHT_PHRASES: Final = _Phrases(_TABLES["right"])
_RELATED_PHRASES: Final = _Phrases(_TABLES["heading"])
_NEAR: Final = 5
_FEW_LETTERS: Final = 3
_NEAR_BEHIND: Final = 4


@lru_cache(maxsize=4096)
def left_says(text: str) -> frozenset[str]:
    """The roles that the last words before a number give to it."""
    words = [each.lower() for each in _WORD.findall(text)[-_NEAR:]]
    return _LEFT_PHRASES.roles(words, text[-14:], -1)


@lru_cache(maxsize=4096)
def right_says(text: str) -> frozenset[str]:
    """The roles that the first words behind a number give to it."""
    words = [each.lower() for each in _WORD.findall(text)[:_NEAR_BEHIND]]
    return _RIGHT_PHRASES.roles(words, text[:8], 0)


def is_lowest_recent(text: str) -> bool:
    """Whether the words before a number say that it is the lowest price of the last 30 days, and not what is asked."""
    found = LAST_DAYS.search(text) if "30" in text else None
    return found is not None and bool(_LOW_PRICE.search(text) or not _WORD.search(text, found.end()))


_LOW_PRICE: Final = re.compile(
    rf"{_PRICE_NAME.pattern}|\bpre[țt]|τιμ[ήέ]|\bár(?:a|on)?\b|low|niedrig|bajo|basso|baixo|laag|lägst|lavest|alin|najni[żzž]|nejni"
    r"|alacsony|sc[ăa]zut|düşük|низк|нижч|χαμηλ|נמוך|أدنى|أقل|thấp|terendah|最低|最安|최저|ต่ำ",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def is_related(heading: str) -> bool:
    """Whether a heading begins a part of the page about other things."""
    words = [each.lower() for each in _WORD.findall(heading[:120])]
    return bool(_RELATED_PHRASES.roles(words, heading[:120], 0))


def _one_of(phrases: Iterable[str]) -> re.Pattern[str]:
    """Grouped by their first letters: of hundreds of phrases few are tried at each letter of a text."""
    groups: dict[str, list[str]] = {}
    for each in phrases:
        groups.setdefault(each[0], []).append(re.escape(each[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in groups.items()))


_ON_PAGES: Final = {
    kind: _one_of(" ".join(each.split()) for each in written.split("|")) for kind, written in _TABLES["page"].items()
}
_FIRST: Final = {
    kind: frozenset(re.split(r"\W", " ".join(each.split()))[0] for each in written.split("|"))
    for kind, written in _TABLES["page"].items()
}


def may_say(text: str, *kinds: str) -> bool:
    """Whether a text holds the first word of any such phrase. Most texts do not, and this is quick."""
    if not text.isascii():
        return True
    return not _first_words(kinds).isdisjoint(_ASCII_WORD.findall(text.lower()))


_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")


@cache
def _first_words(kinds: Sequence[str]) -> frozenset[str]:
    return frozenset().union(*(_FIRST[kind] for kind in kinds))


def says_any(text: str, *kinds: str) -> bool:
    """Whether a text holds one of the words of a log-in, of a list, of a button that buys ..."""
    small = text.lower()
    return any(may_say(text, kind) and _ON_PAGES[kind].search(small) for kind in kinds)
