"""The words of a title that distinguish products."""

import re
from collections.abc import Sequence
from typing import Final
from unicodedata import normalize


def plain_text(text: str) -> str:
    """One spelling for all cases, widths and spaces."""
    one_case = normalize("NFKC", text).upper().casefold()
    return " ".join(normalize("NFKC", one_case).split())


NUMBER_COUNTS: Final = 2.0
_LONGEST_WORD: Final = 60
_MOST_WORDS: Final = 100

LITTLE_WORDS: Final = frozenset("a an and at by de der die das for from in la le of on or the to und with".split())  # noqa: SIM905
CHINESE: Final = r"[぀-ヿ㐀-䶿一-鿿가-힣]"
_WORD: Final = re.compile(rf"{CHINESE}+|(?:(?!{CHINESE})\w)+")
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
_PLURAL: Final = re.compile(r"[a-z]{3,}(?<!s)s")
_UNIT: Final = re.compile(r"\b(\d+) ?(mm|cm|km|mg|g|kg|ml|cl|oz|lb|inch|mb|gb|tb|mah|hz|mhz|ghz|mp|ct|pc)s?\b")


def word_weight(word: str) -> float:
    return NUMBER_COUNTS if any(sign.isdigit() for sign in word) else 1.0


def words_of(text: str) -> list[str]:
    """Words without accents and plurals, numbers with units. Text without spaces is split into pairs of characters."""
    found = []
    for run in _WORD.findall(_UNIT.sub(r"\1\2", without_accents(text))):
        if re.match(CHINESE, run) and len(run) > 1:
            found += [run[place : place + 2] for place in range(len(run) - 1)]
        else:
            found.append(run[:-1] if _PLURAL.fullmatch(run) else run)
    return found


def without_accents(text: str) -> str:
    """Sellers write pokemon for pokémon. Marks of scripts that are not European stay."""
    return text if text.isascii() else normalize("NFC", _ACCENTS.sub("", normalize("NFD", text)))


def title_words(title: str) -> Sequence[str]:
    """The words by which a product is found, each once, the most specific first."""
    found = {word for word in words_of(plain_text(title)) if word not in LITTLE_WORDS and len(word) <= _LONGEST_WORD}
    return sorted(found, key=lambda word: (-word_weight(word), -len(word), word))[:_MOST_WORDS]
