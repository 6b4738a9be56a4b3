"""The real network behind the transport port: aiohttp, one pool of connections, strict limits."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import aiohttp
from yarl import URL

from mistnet.kit.transport import HttpAnswer, HttpRequest, Unanswered, Unreached

_CONNECT_SECONDS: Final = 10
_TOTAL_SECONDS: Final = 60
_LARGEST_BODY: Final = 32 * 1024 * 1024
_NEVER_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


class HttpTransport:
    """Sends requests to one server. Open it with `async with`."""

    def __init__(self, base_url: str, *, user_agent: str, total_seconds: float = _TOTAL_SECONDS) -> None:
        self._base = URL(base_url)
        self._user_agent = user_agent
        self._timeout = aiohttp.ClientTimeout(total=total_seconds, connect=_CONNECT_SECONDS)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=self._timeout, headers={"User-Agent": self._user_agent}, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    async def send(self, request: HttpRequest) -> HttpAnswer:
        if self._session is None:
            raise RuntimeError("the transport is not open")
        url = self._base.joinpath(request.path.lstrip("/")).with_query({**request.query, **request.hidden})
        try:
            async with self._session.request(
                request.method, url, headers=dict(request.headers), data=request.form, allow_redirects=False
            ) as answer:
                body = bytearray()
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > _LARGEST_BODY:
                        raise aiohttp.ClientPayloadError(f"more than {_LARGEST_BODY} bytes")
                return HttpAnswer(status=answer.status, headers=dict(answer.headers), body=bytes(body))
        except _NEVER_SENT as error:
            raise Unreached(f"{type(error).__name__}: {error}") from error
        except TimeoutError:
            raise Unanswered("no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unanswered(f"{type(error).__name__}: {error}") from error
