"""Answers of the API have the fields of their records."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NewType

import msgspec

from mistnet.web.fields import Document

NestId = NewType("NestId", int)


class Egg(msgspec.Struct):
    id: int
    grams: Decimal


class Nest(msgspec.Struct):
    id: NestId
    bird_id: NestId | None
    built_at: datetime
    eggs: Sequence[Egg]
    height: int
    visits: Mapping[str, int]
    rest: timedelta
    secret: str


class EggDocument(Document, record=Egg):
    pass


class NestDocument(Document, record=Nest, without=("secret",)):
    eggs: list[EggDocument]
    empty: bool = False


def test_ids_amounts_times_and_durations_are_written_in_one_way() -> None:
    nest = Nest(
        id=NestId(2**60),
        bird_id=None,
        built_at=datetime(2026, 3, 1, tzinfo=UTC),
        eggs=[Egg(id=7, grams=Decimal("1E+1"))],
        height=3,
        visits={"owl": 1},
        rest=timedelta(minutes=2),
        secret="here",
    )
    assert NestDocument.model_validate(nest).model_dump(mode="json") == {
        "id": str(2**60),
        "bird_id": None,
        "built_at": "2026-03-01T00:00:00Z",
        "eggs": [{"id": "7", "grams": "10"}],
        "height": 3,
        "visits": {"owl": 1},
        "rest": 120.0,
        "empty": False,
    }


def test_a_document_keeps_the_order_of_its_record() -> None:
    assert list(NestDocument.model_fields) == ["id", "bird_id", "built_at", "eggs", "height", "visits", "rest", "empty"]
