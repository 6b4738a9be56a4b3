"""A number with its noun, in the singular or the plural."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 post`, `2 posts`, `1,200 posts`; `many` where the plural is not the singular with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def are(number: int) -> str:
    return "is" if number == 1 else "are"
