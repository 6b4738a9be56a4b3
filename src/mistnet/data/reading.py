"""Reads what was collected from Python: typed records, Arrow, polars, pandas and DuckDB. docs/analyse.md shows how."""

from __future__ import annotations

import asyncio
import importlib
import threading
import tomllib
import weakref
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from mistnet.data import records
from mistnet.data.model import BadSelection, DataClosed, MissingLibrary, Selection, TableName
from mistnet.data.records import Record
from mistnet.data.store import TableReader, selected_fields
from mistnet.data.tables import SOURCES
from mistnet.kit.columns import ArrowTable, ColumnShape
from mistnet.kit.database import Database, Pools
from mistnet.kit.errors import DatabaseMissing, SettingsError
from mistnet.kit.migrate import ready

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

R = TypeVar("R", bound=Record)
T = TypeVar("T")

Who: TypeAlias = str | int | Sequence[str | int]
"""Users by handle or id, one or several."""

When: TypeAlias = datetime | date | str
"""A time; a day is its first moment, and a time without a zone is in UTC."""


class Filters(TypedDict, total=False):
    """Which rows of a table. A filter that a table has no column for is refused when its rows are read."""

    account: Who | None
    platform: str | None
    """Of links and products: the shop."""

    since: When | None
    until: When | None
    """`since` is included, `until` is not."""

    stored_since: When | None
    stored_until: When | None
    """When a row was first stored."""

    query: str | None
    """Written like a search: of the posts that it finds."""

    segment: str | None
    """Of the members of this segment of users or posts."""

    raw: bool
    """With the payload as the source sent it."""


_TIMES: Final = frozenset({"since", "until", "stored_since", "stored_until"})
_BATCH_ROWS: Final = 10_000
_DATABASE: Final = "mistnet.db"
_SETTINGS: Final = "mistnet.toml"


def open(where: str | Path = ".") -> Data:  # noqa: A001 (as `mistnet.open` it reads well)
    """Open what was collected, for reading: a folder, a SQLite file, or the URL of a database.

    In a folder the settings file names the database; without one it is `mistnet.db`.
    """
    url, engine = _url_of(where), Engine()

    async def connect() -> Data:
        pools = Pools(url, read_only=True)
        database = Database(url, pools=pools)
        try:
            await ready(database)
        except BaseException:
            await pools.close()
            raise
        return Data(database, pools, engine)

    try:
        return engine.run(connect())
    except BaseException:
        engine.stop()
        raise


def _url_of(where: str | Path) -> str:
    if "://" in str(where):
        return str(where)
    place = Path(where).expanduser()
    if not place.is_dir():
        if not place.exists():
            raise DatabaseMissing(place)
        return f"sqlite:///{place}"
    settings = place / _SETTINGS
    try:
        named = tomllib.loads(settings.read_text(encoding="utf-8")).get("database_url")
    except FileNotFoundError:
        named = None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError("database_url", str(settings), f"cannot be read: {error}") from None
    url = str(named or f"sqlite:///{_DATABASE}")
    head, slashes, file = url.partition(":///")
    if not head.startswith("sqlite"):
        return url
    return f"{head}{slashes}{place.absolute() / file}"  # settings name a file relative to their folder


class Engine:
    """An event loop in a thread of its own: notebooks run one in theirs already."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="mistnet-reading", daemon=True)
        thread.start()
        # Also when the interpreter ends: what is still being read then must not wait for a thread that stands still.
        self.stop = weakref.finalize(self, _stop, self._loop, thread)

    @property
    def runs(self) -> bool:
        return self.stop.alive

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        if not self.runs:
            step.close()
            raise DataClosed
        running = asyncio.run_coroutine_threadsafe(step, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # Ctrl-C ends the query too
            raise


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=10)
    if not thread.is_alive():
        loop.close()


class Rows(Generic[R]):
    """The rows of one table that fit the filters. Nothing is read before they are asked for; each request reads again.

    Iterate over them for typed records, a page in memory at a time; or get all of them as Arrow, polars or pandas.
    """

    def __init__(self, reader: TableReader, engine: Engine, selection: Selection) -> None:
        self._reader = reader
        self._engine = engine
        self._selection = selection
        self._fields = selected_fields(selection)

    def __repr__(self) -> str:
        return f"<{self._selection.what}: {len(self._fields)} columns; iterate, or use count(), to_arrow(), polars()>"

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns, each with its meaning."""
        return {field.name: field.meaning for field in self._fields}

    def __iter__(self) -> Iterator[R]:
        record: Any = SOURCES[self._selection.what].record
        names = [each.name for each in self._fields]
        # The database returns JSON and lists as text; every other value is as the record has it.
        readers = [
            msgspec.json.Decoder(list[each.item] if each.shape is ColumnShape.LIST else Any, strict=False).decode  # type: ignore[name-defined]  # made at run time
            if each.shape in (ColumnShape.JSON, ColumnShape.LIST)
            else None
            for each in self._fields
        ]
        for page in self._pages():
            for row in page:
                yield record(
                    **{
                        name: read(value) if read and value is not None else value
                        for name, read, value in zip(names, readers, row, strict=True)
                    }
                )

    def count(self) -> int:
        """How many rows there are now."""
        return self._engine.run(self._reader.count(self._selection))

    def arrow_batches(self, rows: int = _BATCH_ROWS) -> pa.RecordBatchReader:
        """The rows in record batches, one in memory at a time. DuckDB and polars can read them too."""
        table = ArrowTable(f"Arrow for {self._selection.what}", self._fields)
        arrow = importlib.import_module("pyarrow")
        batches: pa.RecordBatchReader = arrow.RecordBatchReader.from_batches(table.schema, self._batches(table, rows))
        return batches

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return self.arrow_batches().read_all()

    def polars(self) -> pl.DataFrame:
        """All rows as a polars data frame."""
        frame: pl.DataFrame = self._library("polars").from_arrow(self.to_arrow())
        return frame

    def pandas(self) -> pd.DataFrame:
        """All rows as a pandas data frame. Ids and counts stay whole numbers where some are unknown."""
        pandas, table = self._library("pandas"), self.to_arrow()
        arrow = importlib.import_module("pyarrow")
        kinds = {arrow.int64(): pandas.Int64Dtype(), arrow.bool_(): pandas.BooleanDtype()}
        frame: pd.DataFrame = table.to_pandas(types_mapper=kinds.get)
        return frame

    def duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a relation of DuckDB, of this connection or of the default one."""
        library = self._library("duckdb")
        relation: duckdb.DuckDBPyRelation = (connection or library).from_arrow(self.to_arrow())
        return relation

    def _library(self, name: str) -> Any:
        try:
            return importlib.import_module(name)
        except ImportError:
            raise MissingLibrary(f".{name}()", name) from None

    def _batches(self, table: ArrowTable, rows: int) -> Iterator[Any]:
        held: list[Sequence[Any]] = []
        for page in self._pages():
            held += page
            if len(held) >= rows:
                yield table.batch(held)
                held.clear()
        if held:
            yield table.batch(held)

    def _pages(self) -> Iterator[Sequence[Sequence[Any]]]:
        pages = self._reader.pages(self._selection)

        async def read_next() -> Sequence[Sequence[Any]] | None:
            return await anext(pages, None)

        try:
            while (page := self._engine.run(read_next())) is not None:
                yield page
        finally:
            if self._engine.runs:
                self._engine.run(pages.aclose())


def _moment(what: TableName, name: str, given: When | None) -> datetime | None:
    if given is None:
        return None
    try:
        read = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise BadSelection(
            what, f"{name} must be a time like 2027-01-31 or 2027-01-31T12:00:00Z, not {given!r}"
        ) from None
    moment = read if isinstance(read, datetime) else datetime.combine(read, time())
    with suppress(OverflowError):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    return moment.replace(tzinfo=UTC)


class Data:
    """What was collected in one database. Only reads, and may be used while others write.

    Every table is a method that takes `Filters` by keyword.
    """

    def __init__(self, database: Database, pools: Pools, engine: Engine) -> None:
        self._database = database
        self._pools = pools
        self._engine = engine
        self._reader = TableReader(database)

    def __repr__(self) -> str:
        return f"<mistnet data in {self._database.shown_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Rows can no longer be read then."""
        if self._engine.runs:
            self._engine.run(self._pools.close())
            self._engine.stop()

    def posts(self, **filters: Unpack[Filters]) -> Rows[records.PostRecord]:
        """Posts by the time they were written. `stored_since` and `stored_until` go by when they were first stored."""
        return self._rows(TableName.POSTS, filters)

    def users(self, **filters: Unpack[Filters]) -> Rows[records.UserRecord]:
        """Users; `since` and `until` go by when they were first stored."""
        return self._rows(TableName.USERS, filters)

    def user_versions(self, **filters: Unpack[Filters]) -> Rows[records.UserVersionRecord]:
        """Earlier handles, names and biographies of users."""
        return self._rows(TableName.USER_VERSIONS, filters)

    def accounts(self, **filters: Unpack[Filters]) -> Rows[records.AccountRecord]:
        """Tracked accounts."""
        return self._rows(TableName.ACCOUNTS, filters)

    def coverage(self, **filters: Unpack[Filters]) -> Rows[records.CoverageRecord]:
        """What of each account's history is complete, being collected or missing."""
        return self._rows(TableName.COVERAGE, filters)

    def conversations(self, **filters: Unpack[Filters]) -> Rows[records.ConversationRecord]:
        """Conversations, each with its number of posts. With filters: those that have a fitting post."""
        return self._rows(TableName.CONVERSATIONS, filters)

    def follows(self, **filters: Unpack[Filters]) -> Rows[records.FollowRecord]:
        """Who follows whom; with `account`, the followers and followings of these users."""
        return self._rows(TableName.FOLLOWS, filters)

    def follow_events(self, **filters: Unpack[Filters]) -> Rows[records.FollowEventRecord]:
        """Follows and unfollows by number, that is in the order in which they were noticed."""
        return self._rows(TableName.FOLLOW_EVENTS, filters)

    def segment_members(self, **filters: Unpack[Filters]) -> Rows[records.SegmentMemberRecord]:
        """The members of one segment, or of all."""
        return self._rows(TableName.SEGMENT_MEMBERS, filters)

    def links(self, **filters: Unpack[Filters]) -> Rows[records.LinkRecord]:
        """Links; with filters for posts, those in fitting posts. `platform` is the shop."""
        return self._rows(TableName.LINKS, filters)

    def post_links(self, **filters: Unpack[Filters]) -> Rows[records.PostLinkRecord]:
        """Which post has which link; `since` and `until` go by when the post was written."""
        return self._rows(TableName.POST_LINKS, filters)

    def products(self, **filters: Unpack[Filters]) -> Rows[records.ProductRecord]:
        """Products that links lead to. `platform` is the shop."""
        return self._rows(TableName.PRODUCTS, filters)

    def offers(self, **filters: Unpack[Filters]) -> Rows[records.OfferRecord]:
        """What pages asked for products, by number."""
        return self._rows(TableName.OFFERS, filters)

    def items(self, **filters: Unpack[Filters]) -> Rows[records.ItemRecord]:
        """Items whose prices are followed."""
        return self._rows(TableName.ITEMS, filters)

    def price_points(self, **filters: Unpack[Filters]) -> Rows[records.PricePointRecord]:
        """Prices of items."""
        return self._rows(TableName.PRICE_POINTS, filters)

    def valuations(self, **filters: Unpack[Filters]) -> Rows[records.ValuationRecord]:
        """The current valuation of each item."""
        return self._rows(TableName.VALUATIONS, filters)

    def valuation_history(self, **filters: Unpack[Filters]) -> Rows[records.ValuationHistoryRecord]:
        """What items were worth over time."""
        return self._rows(TableName.VALUATION_HISTORY, filters)

    def suggestions(self, **filters: Unpack[Filters]) -> Rows[records.SuggestionRecord]:
        """Suggested accounts and what came of them."""
        return self._rows(TableName.SUGGESTIONS, filters)

    def missing(self, **filters: Unpack[Filters]) -> Rows[records.MissingRecord]:
        """Users and posts that the platform did not return."""
        return self._rows(TableName.MISSING, filters)

    def calls(self, **filters: Unpack[Filters]) -> Rows[records.LedgerRecord]:
        """Calls to sources and what they cost."""
        return self._rows(TableName.CALLS, filters)

    def _rows(self, what: TableName, given: Filters) -> Rows[Any]:
        filters: dict[str, Any] = {**given}
        accounts = filters.pop("account", None)
        if accounts is not None:
            filters["accounts"] = (accounts,) if isinstance(accounts, str | int) else tuple(accounts)
        for name in _TIMES & filters.keys():
            filters[name] = _moment(what, name, filters[name])
        return Rows(self._reader, self._engine, Selection(what=what, **filters))
