"""Reads microdata: elements marked with itemscope and itemprop, in the same form as JSON-LD."""

from collections.abc import Iterator
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

_BY_ATTRIBUTE: Final = {
    "meta": ("content",),
    "link": ("href",),
    "a": ("content", "href"),
    "area": ("href",),
    "img": ("content", "src", "data-src"),
    "audio": ("src",),
    "video": ("src",),
    "iframe": ("src",),
    "source": ("src",),
    "object": ("data",),
    "data": ("value",),
    "meter": ("value",),
    "time": ("datetime",),
    "input": ("content", "value"),
}
_DEEPEST: Final = 200
_TEXT: Final = 2000


def items(tree: LexborHTMLParser) -> Iterator[dict[str, Any]]:
    """The outermost items of a page: those that are no property of another."""
    known: dict[int, bool] = {}
    for node in tree.css("[itemscope]"):
        if "itemprop" not in node.attributes or not _inside_item(node, known):
            yield item(node)


def item(node: LexborNode, depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"@type": _type(node)}
    _collect(node, found, depth)
    return found


def _collect(node: LexborNode, into: dict[str, Any], depth: int) -> None:
    if depth > _DEEPEST:
        return
    for child in node.iter(include_text=False):
        attributes = child.attributes
        if names := (attributes.get("itemprop") or "").split():
            value = item(child, depth + 1) if "itemscope" in attributes else value_of(child)
            for name in names:
                into.setdefault(name, []).append(value)
        if "itemscope" not in attributes:
            _collect(child, into, depth + 1)


def value_of(node: LexborNode) -> str:
    """What an element says as a property: by the attribute meant for it, else by its text."""
    attributes = node.attributes
    for name in (*_BY_ATTRIBUTE.get(node.tag or "", ()), "content"):
        if value := attributes.get(name):
            return value.strip()[:_TEXT]
    return " ".join(node.text(deep=True, separator=" ").split())[:_TEXT]


def _type(node: LexborNode) -> str:
    return (node.attributes.get("itemtype") or "").strip().rstrip("/").rpartition("/")[2]


def _inside_item(node: LexborNode, known: dict[int, bool]) -> bool:
    """Walks up to an element that was passed before, at most: a page may hold thousands inside one another."""
    passed: list[int] = []
    parent, found = node.parent, False
    while parent is not None and not found:
        if parent.mem_id in known:
            found = known[parent.mem_id]
            break
        passed.append(parent.mem_id)
        found = parent.tag != "-undef" and bool(parent.attributes) and "itemscope" in parent.attributes
        parent = parent.parent
    known.update(dict.fromkeys(passed, found))
    return found
