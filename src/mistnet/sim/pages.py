"""Envelopes: one shape per endpoint, and the cursors that lead from page to page."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from mistnet.sim.ledger import follow_ids_price, follow_list_price, posts_price

POSITION_BYTES = 9
SUCCESS = b'"status":"success","msg":"success"'
SUCCESS_WITH_CODE = b'"status":"success","code":0,"msg":"success"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`records` is the key that holds them; `nested` puts it inside `data`, while the paging stays at the root."""

    records: str
    price: Callable[[int], int]
    before: bytes = b""
    after: bytes = b""
    nested: bool = False
    paged: bool = True
    holds_posts: bool = True


SEARCH = Shape(records="tweets", price=posts_price)
TIMELINE = Shape(records="tweets", price=posts_price, before=SUCCESS_WITH_CODE, nested=True)
THREAD = Shape(records="tweets", price=posts_price, after=SUCCESS)
LOOKUP = Shape(records="tweets", price=posts_price, before=SUCCESS_WITH_CODE, paged=False)
PROFILES = Shape(records="users", price=lambda users: users, after=SUCCESS, paged=False, holds_posts=False)
FOLLOWERS = Shape(records="followers", price=follow_list_price, before=SUCCESS_WITH_CODE, holds_posts=False)
FOLLOWINGS = Shape(records="followings", price=follow_list_price, before=SUCCESS_WITH_CODE, holds_posts=False)
FOLLOWER_IDS = Shape(records="ids", price=follow_ids_price, before=SUCCESS_WITH_CODE, holds_posts=False)


class Records(StrEnum):
    """What becomes of the records on the way out."""

    KEPT = "kept"
    MISSING = "missing"
    NULL = "null"


@dataclass(slots=True, kw_only=True)
class Listing:
    """One page. `here` leads to this same page again; `above` gives the last posts of the page before it.

    Of a follow list, `whole` is how many are on it, and `after` how many of them come after this page.
    """

    shape: Shape
    records: list[bytes]
    more: bool = False
    cursor: str = ""
    here: str = ""
    above: Callable[[int], list[bytes]] | None = None
    whole: int = 0
    after: int = 0
    written: Records = Records.KEPT
    price: int | None = None
    spoiled: list[str] = field(default_factory=list)

    @property
    def credits_due(self) -> int:
        return self.shape.price(len(self.records)) if self.price is None else self.price

    @property
    def shows_posts(self) -> bool:
        return self.shape.paged and self.shape.holds_posts and bool(self.records)

    def body(self) -> bytes:
        shape = self.shape
        parts = [shape.before] if shape.before else []
        parts += self._records()
        if shape.paged:
            parts.append(
                b'"has_next_page":%s,"next_cursor":"%s"' % (b"true" if self.more else b"false", self.cursor.encode())
            )
        if shape.after:
            parts.append(shape.after)
        return b"{" + b",".join(parts) + b"}"

    def _records(self) -> list[bytes]:
        key = f'"{self.shape.records}":'.encode()
        if self.shape.nested:
            pinned = b'"data":{"pin_tweet":null'
            match self.written:
                case Records.KEPT:
                    return [pinned + b"," + key + b"[" + b",".join(self.records) + b"]}"]
                case Records.MISSING:
                    return [pinned + b"}"]
                case Records.NULL:
                    return [b'"data":null']
        match self.written:
            case Records.KEPT:
                return [key + b"[" + b",".join(self.records) + b"]"]
            case Records.MISSING:
                return [b'"data":[]']
            case Records.NULL:
                return [key + b"null"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """An answer that is no list."""

    body: bytes
    credits_due: int


class CursorKind(StrEnum):
    """Each endpoint's cursors have a beginning of their own and mean nothing elsewhere."""

    SEARCH = "DAACCgAC"
    TIMELINE = "DAABCgAB"
    THREAD = "DAADDAAB"
    FOLLOWS = "DAAGCgAG"


def cursor_to(kind: CursorKind, position: int) -> str:
    return kind + urlsafe_b64encode(position.to_bytes(POSITION_BYTES, "big")).decode()


def position_of(kind: CursorKind, cursor: str) -> int | None:
    """Where a cursor leads; None, the first page, for one that is empty or not ours."""
    if not cursor.startswith(kind):
        return None
    try:
        position = urlsafe_b64decode(cursor.removeprefix(kind))
    except (NotBase64, ValueError):
        return None
    return int.from_bytes(position, "big") if len(position) == POSITION_BYTES else None
