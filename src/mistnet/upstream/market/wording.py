"""What is asked for: an item in the words of a search. Pure."""

from __future__ import annotations

from typing import Final

from mistnet.domain.items import Wish

ASKED: Final = ("year", "mint_mark", "denomination", "series")
"""The attributes a question is made of. They are those a remembered answer is named by, too."""


def query_of(item: Wish) -> str:
    """The title, and whatever of the attributes it does not say already."""
    said = item.title.casefold()
    words = [item.title]
    for name in ASKED:
        value = item.attributes.get(name)
        if value and value.casefold() not in said:
            words.append(value)
    return " ".join(" ".join(words).split())


def remembered_as(source: str, item: Wish, *, with_grade: bool = False) -> str:
    """`source|year|mintmark|denomination|series|title`. A stroke inside a value must not look like one between."""
    values = [item.attributes.get(name, "") for name in ASKED]
    values += [item.title, *([item.attributes.get("grade", "")] if with_grade else [])]
    return "|".join([source, *(value.replace("%7C", "%257C").replace("|", "%7C") for value in values)])
