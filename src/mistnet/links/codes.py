"""Tao-kouling: codes in a text that only the Taobao app can read, and the title the app writes beside them."""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from mistnet.links.finding import find_urls
from mistnet.links.shop_urls import replaced

# Between two marks of money. A price stands there too (￥199￥), so at least one letter must be inside.
# The two yen signs look alike and are mixed.
_MARKED: Final = re.compile(r"[￥¥]\s?([A-Za-z0-9]{6,20})\s?[￥¥]|([$€£¢₳₤₴])\s?([A-Za-z0-9]{6,20})\s?\2")
# Between brackets or the same Chinese character twice anything may stand: only the usual form is believed there,
# and others only where the text speaks of the app.
_BRACKETED: Final = re.compile(
    r"\(([A-Za-z0-9]{8,20})\)|（([A-Za-z0-9]{8,20})）|([\u3400-\u9fff])([A-Za-z0-9]{8,20})\3"
)
# Nothing is marked without one of these; most posts have none.
_HINT: Final = re.compile(r"[￥¥$€£¢₳₤₴(（\u3400-\u9fff]")
_USUAL_LENGTH: Final = 11
_OF_THE_APP: Final = re.compile("淘|天猫|天貓|口令|复制|複製|復制|复製|闲鱼|閒魚")
_MIXED: Final = re.compile(r"(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9])[A-Za-z0-9]+")
_LETTER: Final = re.compile(r"[A-Za-z]")
# Between dollars people write shares and formulas; no code is a plain word.
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PRICE: Final = re.compile(
    r"(?:rmb|cny|usd|us|ntd?|twd|hkd?|myr|rm|sgd|php|thb|vnd|idr|rp|brl|eur|jpy|krw)?[0-9]+"
    r"(?:k|w|rmb|cny|usd|ntd?|twd|hkd?|myr|sgd|php|thb|vnd|idr|brl|eur|jpy|krw|yuan|up|off)?",
    re.IGNORECASE,
)
_APPS: Final = frozenset(
    ("淘宝", "淘寶", "手机淘宝", "手機淘寶", "天猫", "天貓", "淘口令", "淘宝网", "闲鱼", "閒魚", "点击链接", "复制")
)
_BRACKETS: Final = {"「": "」", "【": "】", "『": "』"}


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A code without its marks, the code with them, and the title the app wrote beside it."""

    code: str
    verbatim: str
    title: str | None = None


def find_codes(text: str) -> Sequence[Code]:
    """In order, each once. Never a price, and nothing inside a URL."""
    if not _HINT.search(text) or not _marked(text):
        return []
    title = find_title(text)
    told: dict[str, Code] = {}
    for code, verbatim in _marked(_without_urls(text)):
        told.setdefault(code, Code(code=code, verbatim=verbatim, title=title))
    return list(told.values())


def find_title(text: str) -> str | None:
    """The title in 「」, else in 【】; the app's own name in brackets is none."""
    for opening in _BRACKETS:
        for title in _bracketed(text, opening):
            if title not in _APPS:
                return title
    return None


def _marked(text: str) -> Sequence[tuple[str, str]]:
    sure = [(each.start(), each[1] or each[3], each[0]) for each in _MARKED.finditer(text) if _is_code(each)]
    of_the_app = bool(_OF_THE_APP.search(text))
    for each in _BRACKETED.finditer(text):
        code = each[1] or each[2] or each[4]
        if _usual(code) or (of_the_app and _stands_out(code)):
            sure.append((each.start(), code, each[0]))
    return [(code, verbatim) for _, code, verbatim in sorted(sure)]


def _is_code(marked: re.Match[str]) -> bool:
    if code := marked[1]:
        return bool(_LETTER.search(code)) and not _PRICE.fullmatch(code)
    return _stands_out(marked[3])


def _stands_out(code: str) -> bool:
    return bool(_LETTER.search(code)) and not _PRICE.fullmatch(code) and not _WORD.fullmatch(code)


def _usual(code: str) -> bool:
    return len(code) == _USUAL_LENGTH and bool(_MIXED.fullmatch(code))


def _without_urls(text: str) -> str:
    return replaced(text, [(found.start, found.end) for found in find_urls(text)], "\n")


def _bracketed(text: str, opening: str) -> Iterator[str]:
    """What stands between a bracket and its partner: titles hold brackets themselves."""
    closing, depth, start = _BRACKETS[opening], 0, 0
    for place, mark in enumerate(text):
        if mark == opening:
            depth += 1
            start = place + 1 if depth == 1 else start
        elif mark == closing and depth:
            depth -= 1
            if not depth and (title := text[start:place].strip()):
                yield title
