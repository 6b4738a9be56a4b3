"""Types of fields of requests and responses: ids as strings, times in UTC, storable text. Documents from records."""

from __future__ import annotations

import re
from collections import abc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cache
from inspect import get_annotations
from types import UnionType, new_class
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    StringConstraints,
)
from pydantic.json_schema import WithJsonSchema
from pydantic_core import CoreSchema, core_schema
from starlette.convertors import Convertor, register_url_convertor

from mistnet.kit import text as numbers
from mistnet.social.model import UserId
from mistnet.social.store.post_listing import POST_CURSOR
from mistnet.web.errors import NotFound

E = TypeVar("E", bound=StrEnum)
LARGEST_ID: Final = numbers.LARGEST_ID
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_WHOLE: Final = re.compile(r"-?\d{1,20}")
WRITTEN_ID: Final = r"^[1-9][0-9]{0,18}$"
PLAIN: Final = r"^[^\x00]*$"
"""No database stores NUL."""


class RequestBody(BaseModel):
    """The JSON body of a request: types are not coerced, unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class IdConvertor(Convertor[int]):
    """`{id:id}` in a path. The framework's `{id:int}` fails for a number with more digits than Python reads."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("id", IdConvertor())  # the framework looks it up by name when a route is made


def _read_moment(value: object) -> datetime:
    """Read RFC 3339 strictly."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("write a time as 2026-03-01T12:00:00Z")
    try:
        # RFC 3339 allows the second 60, which Python does not know.
        return datetime.fromisoformat(value.upper().replace(":60", ":59")).astimezone(UTC)
    except OverflowError:
        # The offset leads out of the years of Python: the nearest time compares alike with all that is stored.
        return datetime.min.replace(tzinfo=UTC) if value[0] == "0" else datetime.max.replace(tzinfo=UTC)


def _read_whole(value: object) -> object:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError("write a whole number in digits")
    return value


def _write_number(value: object) -> object:
    """All digits of an id or an amount: JSON numbers of other programs have only 53 bits."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Id = Annotated[str, BeforeValidator(_write_number), Field(description="An id: a 64-bit number as a string.")]
Moment = Annotated[datetime, PlainSerializer(lambda at: at.astimezone(UTC), return_type=datetime)]
WrittenMoment = Annotated[
    datetime, BeforeValidator(_read_moment), WithJsonSchema({"type": "string", "format": "date-time"})
]
Whole = BeforeValidator(_read_whole)
Integral = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
"""JSON does not distinguish 5 and 5.0."""
PathId = Annotated[str, Path(pattern=WRITTEN_ID, description="An id: a 64-bit number.")]
NumberPath = Annotated[int, Path(ge=1, le=LARGEST_ID, description="An id.")]
"""For `{id:id}`, where the path may have a word in its place."""

without_nul = AfterValidator(lambda text: text.replace("\x00", ""))
Word = Annotated[str, Query(max_length=20)]
ShortText = Annotated[str, Query(max_length=100), without_nul]
QueryText = Annotated[str, Query(max_length=500), without_nul]
BeforeId = Annotated[int | None, Query(ge=1, le=LARGEST_ID)]
PostPlace = Annotated[str | None, Query(pattern=POST_CURSOR)]
"""Parameters of pages: a word to choose from, text to search for, and where a list begins."""

Who = Annotated[
    str,
    Path(
        pattern=r"^(@?[A-Za-z0-9_]{1,15}|[1-9][0-9]{0,18})$",
        description="A user id, or a handle. Write a handle that has only digits with an @.",
    ),
]


Amount = Annotated[str, BeforeValidator(_write_number), Field(description="An exact amount: its digits as a string.")]
Seconds = Annotated[
    float, BeforeValidator(lambda value: value.total_seconds() if isinstance(value, timedelta) else value)
]


def _document_type(field: str, hint: Any) -> Any:  # noqa: PLR0911 (one for each form of a type)
    """The type of a field in a document: `str | None` for `UserId | None`, a document for a record, and so on."""
    members, origin = get_args(hint), get_origin(hint)
    if origin is Annotated:
        return hint
    if origin in (Union, UnionType):
        return Union[tuple(_document_type(field, each) for each in members)]  # noqa: UP007 (made at run time)
    if origin in (list, tuple, abc.Sequence):
        return list[_document_type(field, members[0])]  # type: ignore[misc]  # made at run time
    if origin in (dict, abc.Mapping):
        return dict[str, _document_type("", members[1])]  # type: ignore[misc]
    plain = getattr(hint, "__supertype__", hint)
    if plain is int and (field == "id" or field.endswith("_id") or hint.__name__.endswith("Id")):
        return Id
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return document_of(plain)
    return {datetime: Moment, Decimal: Amount, timedelta: Seconds, msgspec.Raw: Any}.get(plain, plain)


class Document(BaseModel):
    """An answer: ids and amounts as strings, times in UTC, durations in seconds.

    `class PostDocument(Document, record=Post)` has the record's fields. A field declared in the class replaces the
    record's or is added to it. A field whose type is a record holds the document of that record.
    """

    model_config = ConfigDict(from_attributes=True)

    def __init_subclass__(
        cls, *, record: type[msgspec.Struct] | None = None, without: Sequence[str] = (), **other: Any
    ) -> None:
        super().__init_subclass__(**other)
        # Python calls this before pydantic reads the annotations.
        own = get_annotations(cls, eval_str=True)
        shared = {} if record is None else get_type_hints(record)
        # Not in the order of the hints, where those of a record's base come first.
        fields = () if record is None else record.__struct_fields__
        hints = {field: own.get(field, shared[field]) for field in fields if field not in without} | own
        cls.__annotations__ = {field: _document_type(field, hint) for field, hint in hints.items()}


@cache
def document_of(record: type[msgspec.Struct], *without: str) -> Any:
    """The document of a record as it is, with the record's name and description."""
    namespace: dict[str, Any] = {"__doc__": record.__doc__, "__module__": __name__, "__annotations__": {}}
    keywords = {"record": record, "without": without}
    return new_class(record.__name__, (Document,), keywords, lambda own: own.update(namespace))


def list_of(record: type[msgspec.Struct], under: str = "items") -> Any:
    """A document with one list of such records, which comes in one piece."""
    namespace = {"__module__": __name__, "__annotations__": {under: list[record]}}  # type: ignore[valid-type]
    return new_class(f"{record.__name__}List", (Document,), {}, lambda own: own.update(namespace))


class OneOf:
    """The words that a text may be, where they are known at run time: `Annotated[str, OneOf(words)]`."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(self._words)


Flag = Literal["true", "false"]
Reason = Annotated[str, StringConstraints(pattern=PLAIN, min_length=1, max_length=500)]


def number_of(written: str) -> int:
    """The id in a path. 404 for a number that no row can have."""
    number = numbers.read_number(written)
    if number is None:
        raise NotFound(f"such id: {written}")
    return number


def id_or_handle(who: str) -> UserId | str:
    """The user id or handle in a path."""
    return UserId(number_of(who)) if who.isdecimal() else who.removeprefix("@")


def read_flag(given: str | None) -> bool | None:
    """The value of a `Flag` that may be left out."""
    return None if given is None else given == "true"


def one_of(known: type[E], word: str) -> E | None:
    """The member that a word names. A page ignores other words in its URL."""
    return known(word) if word in set(known) else None
