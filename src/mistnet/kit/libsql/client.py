"""A client of one libSQL server over HTTP: it sends pipelines, reads answers and translates errors to SQLite's."""

from __future__ import annotations

import math
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from io import BytesIO
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from mistnet.kit.libsql.server import (
    LibsqlAddress,
    ServerBusy,
    ServerGone,
    StreamLost,
    TokenRefused,
    TransactionLost,
    refusal,
)

Plain: TypeAlias = int | float | str | bytes | None
Sent: TypeAlias = Mapping[str, Any]

_NULL: Final[Sent] = {"type": "null"}
_LEAST, _MOST = -(2**63), 2**63 - 1


class Value(msgspec.Struct):
    """A value as the server encodes it."""

    type: str
    value: str | float | None = None
    base64: str | None = None


def to_server(value: object) -> Sent:
    """Encode a value of a type that the sqlite3 module takes. Refuse values that would arrive changed."""
    match value:
        case None:
            return _NULL
        case str():
            return {"type": "text", "value": value}
        case int() if not _LEAST <= value <= _MOST:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        case int():
            # A truth value is an int, too.
            return {"type": "integer", "value": str(int(value))}
        case float() if math.isinf(value):
            # JSON has no word for it.
            raise sqlite3.DataError("infinity cannot be sent to a libSQL server")
        case float():
            # As SQLite keeps not-a-number.
            return _NULL if math.isnan(value) else {"type": "float", "value": value}
        case bytes() | bytearray() | memoryview():
            return {"type": "blob", "base64": b64encode(value).decode()}
        case _:
            raise sqlite3.ProgrammingError(f"values of type {type(value).__name__!r} cannot be sent")


def from_server(value: Value) -> Plain:
    match value.type:
        case "integer":
            return int(value.value or 0)
        case "float":
            return None if value.value is None else float(value.value)
        case "text":
            return str(value.value)
        case "blob":
            encoded = value.base64 or ""
            # The server leaves the padding out.
            return b64decode(encoded + "=" * (-len(encoded) % 4))
        case "null":
            return None
        case _:
            raise sqlite3.DataError(f"the server sent a value of unknown type {value.type!r}")


def rows_of(found: Sequence[Sequence[Value]]) -> list[tuple[Plain, ...]]:
    return [tuple([from_server(value) for value in row]) for row in found]


Request: TypeAlias = Mapping[str, Any]
Step: TypeAlias = Mapping[str, Any]
Condition: TypeAlias = Mapping[str, Any]

CLOSE: Final[Request] = {"type": "close"}
IN_TRANSACTION: Final[Condition] = {"type": "not", "cond": {"type": "is_autocommit"}}
"""Guards each statement of a transaction: if the server has undone it, later statements must not run alone."""


class LibsqlRefusal(msgspec.Struct):
    """Why the server refused a statement or a request."""

    message: str = "no reason given"
    code: str | None = None


class Column(msgspec.Struct):
    """A column of a result."""

    name: str | None = None


class Result(msgspec.Struct):
    """The result of one statement."""

    cols: list[Column] = []
    rows: list[list[Value]] = []
    affected_row_count: int = 0
    last_insert_rowid: str | None = None
    replication_index: str | int | None = None


class Steps(msgspec.Struct):
    """The results of a batch: for each step a result, an error, or neither if it was skipped."""

    step_results: list[Result | None]
    step_errors: list[LibsqlRefusal | None]
    replication_index: str | int | None = None


class Response(msgspec.Struct):
    """The answer to one request. The type of its result depends on the request."""

    type: str
    result: msgspec.Raw = msgspec.Raw(b"")


class RequestOutcome(msgspec.Struct):
    """The outcome of one request of a pipeline."""

    type: str
    response: Response | None = None
    error: LibsqlRefusal | None = None


class PipelineAnswer(msgspec.Struct):
    """The answer to a pipeline. The next request of the stream needs its baton; without one the stream is closed."""

    results: list[RequestOutcome]
    baton: str | None = None
    base_url: str | None = None


def statement(sql: str, values: Sequence[object] = ()) -> Mapping[str, Any]:
    return {"sql": sql, "args": [to_server(value) for value in values]}


def stored(sql_id: int, values: Sequence[object]) -> Mapping[str, Any]:
    """A statement whose text the stream already has. It returns no rows."""
    return {"sql_id": sql_id, "args": [to_server(value) for value in values], "want_rows": False}


def step(stmt: Mapping[str, Any], condition: Condition | None = None) -> Step:
    return {"stmt": stmt} if condition is None else {"stmt": stmt, "condition": condition}


def after(index: int) -> Condition:
    """Run a step only if the step with this index succeeded."""
    return {"type": "ok", "step": index}


def batch(steps: Sequence[Step]) -> Request:
    return {"type": "batch", "batch": {"steps": steps}}


_PATH: Final = "/v3/pipeline"
_CURSOR_PATH: Final = "/v3/cursor"
_CONNECT_SECONDS: Final = 10
_ANSWER_SECONDS: Final = 60
_NO_HURRY: Final = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_ANSWER_SECONDS)
# Shorter than the time-outs of proxies: none closes a connection as we write to it.
_KEEP_SECONDS: Final = 15
_SHOWN: Final = 200
_LARGE: Final = 2**19
_ENCODER: Final = msgspec.json.Encoder()
_ANSWERS: Final = msgspec.json.Decoder(PipelineAnswer)


T = TypeVar("T")


def decoded(decoder: msgspec.json.Decoder[T], said: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ServerGone(f"the server's answer cannot be read: {error}") from None


class LibsqlErrorBody(msgspec.Struct):
    """The body of an error answer, in both forms that servers use."""

    message: str = ""
    error: str = ""
    code: str | None = None


_COMPLAINTS: Final = msgspec.json.Decoder(LibsqlErrorBody)


class LibsqlServer:
    """An HTTP session that all connections to one database share. The first request opens it; callers close it."""

    def __init__(self, address: LibsqlAddress) -> None:
        self.address = address
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, requests: Sequence[Request], *, baton: str | None = None, base_url: str | None = None
    ) -> PipelineAnswer:
        """One round trip. The requests run in order, and each has its own outcome."""
        body = _ENCODER.encode({"baton": baton, "requests": requests})
        url = (base_url or self.address.base_url) + _PATH
        # Sent in pieces, so that other tasks run in between.
        data = body if len(body) < _LARGE else BytesIO(body)
        with self._named():
            async with self._opened().post(url, data=data, allow_redirects=False) as received:
                status, said = received.status, await received.read()
        if status != 200:
            raise _failure(status, said, in_stream=baton is not None)
        answer = decoded(_ANSWERS, said)
        if len(answer.results) != len(requests):
            raise ServerGone(f"the server answered {len(answer.results)} of {len(requests)} requests")
        return answer

    async def lines(self, batch: Request) -> AsyncGenerator[bytes, None]:
        """The answer to one batch, line by line, of any size."""
        body = _ENCODER.encode({"baton": None, **batch})
        with self._named():
            opened = self._opened().post(
                self.address.base_url + _CURSOR_PATH, data=body, allow_redirects=False, timeout=_NO_HURRY
            )
            async with opened as answer:
                if answer.status != 200:
                    raise _failure(answer.status, await answer.read(), in_stream=False)
                # Split here: StreamReader limits the length of the lines that it reads.
                left = b""
                async for chunk in answer.content.iter_any():
                    *whole, left = (left + chunk).split(b"\n")
                    for line in whole:
                        yield line
                if left:
                    yield left

    def following(self, told: str | None, current: str | None) -> str | None:
        """The address for the next request of a stream. A server may name another one, but never without encryption."""
        if told is None:
            return current
        if urlsplit(self.address.base_url).scheme == "https" and urlsplit(told).scheme != "https":
            raise ServerGone("the server sends us to an address without encryption")
        return told.rstrip("/")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise ServerGone(f"no answer from {self.address.base_url} in time") from None
        except aiohttp.ClientConnectorError as error:
            raise ServerGone(f"no connection to {self.address.base_url}: {error.os_error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ServerGone(f"{self.address.base_url}: {error or type(error).__name__}") from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self.address.token:
                headers["Authorization"] = f"Bearer {self.address.token}"
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS, resolver=LocalNames()),
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS, sock_connect=_CONNECT_SECONDS),
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class LocalNames(AbstractResolver):
    """Resolve names under .localhost to this machine, as RFC 6761 says: local servers name databases this way."""

    def __init__(self) -> None:
        self._others = ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        local = host.endswith(".localhost")
        found = await self._others.resolve("127.0.0.1" if local else host, port, family)  # type: ignore[arg-type]  # aiohttp's own signature differs from its base
        return [{**each, "hostname": host} for each in found]

    async def close(self) -> None:
        await self._others.close()


def _failure(status: int, said: bytes, *, in_stream: bool) -> Exception:
    """The error of an answer that is not about a statement: about the token, the stream or the server."""
    try:
        body = _COMPLAINTS.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = LibsqlErrorBody(message=said.decode(errors="replace"))
    lines = (body.message or body.error).strip().splitlines()
    problem = lines[0][:_SHOWN] if lines else "nothing said"
    if status in (401, 403):
        return TokenRefused(status)
    if in_stream and isinstance(known := refusal(problem, body.code), TransactionLost):
        return known
    if in_stream and 400 <= status < 500:
        return StreamLost(f"the server does not know our stream: {problem}")
    if status == 429:
        return ServerBusy(f"HTTP 429: {problem}")
    return ServerGone(f"HTTP {status}: {problem}")


class CursorEntry(msgspec.Struct):
    """One line of a cursor: the baton, the columns, a row, an error, or the end."""

    type: str = ""
    baton: str | None = None
    cols: list[Column] = []
    row: list[Value] = []
    error: LibsqlRefusal | None = None


_ENTRIES: Final = msgspec.json.Decoder(CursorEntry)


async def read_large(server: LibsqlServer, sql: str, values: Sequence[object]) -> Result:
    found = Result(cols=[], rows=[])
    baton, ended = None, False
    asked = {"batch": batch([step(statement(sql, values))])["batch"]}
    async with aclosing(server.lines(asked)) as lines:
        async for line in lines:
            entry = decoded(_ENTRIES, line)
            baton = entry.baton or baton
            match entry.type:
                case "step_begin":
                    found.cols = entry.cols
                case "row":
                    found.rows.append(entry.row)
                case "step_error" | "error":
                    told = entry.error or LibsqlRefusal()
                    raise refusal(told.message, told.code)
                case "step_end":
                    ended = True
    if baton is not None:
        # A stream that cannot be closed ends by itself.
        with suppress(sqlite3.Error):
            await server.send([CLOSE], baton=baton)
    if not ended:
        raise ServerGone("the server's answer broke off")
    return found
