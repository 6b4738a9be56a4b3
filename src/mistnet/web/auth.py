"""Authentication: tokens for programs, cookies for people, open access on a loopback address without tokens."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from mistnet.app import App
from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseBusy, DatabaseUnreachable
from mistnet.web.errors import LogInFirst, NotAllowed, RequestRefused, TooOften, Unauthorized
from mistnet.web.proxies import TrustedProxies, came_by_socket, is_forwarded, network_of
from mistnet.web.request_limits import Throttle
from mistnet.web.tokens import (
    TOKEN_PREFIX,
    ApiToken,
    Caller,
    LoginMethod,
    Scope,
    Sessions,
    Tokens,
    digest,
    is_guessable,
    new_secret,
)

_FRIENDLY: Final = {"same-origin", "none"}
_HTTP_PORT: Final = 80


def is_loopback(host: str) -> bool:
    """Of an address or a name; a name other than localhost may lead anywhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def local_entry(request: Request) -> LoginMethod | None:
    """How a program on this machine reached us directly. None: it did not, or it may speak for others.

    A proxy speaks for others. Another name in Host means that a page of another site was led here by its own name
    server, or that the request was meant for the address of a proxy.
    """
    hosts = request.headers.getlist("host")
    if is_forwarded(request) or len(hosts) != 1:
        return None
    if came_by_socket(request):
        return LoginMethod.SOCKET if is_loopback(_name(hosts[0])) else None
    if request.client is None or not is_loopback(request.client.host):
        return None
    return LoginMethod.LOOPBACK if hosts[0].lower() in _own_hosts(request) else None


def sent_by_a_browser(request: Request) -> bool:
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def same_origin(request: Request) -> bool:
    """Browsers say where a request was made; other programs say nothing, and nobody rides on them."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in _FRIENDLY:
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _own_hosts(request: Request) -> set[str]:
    """What Host says when the request was meant for the address and the port that it came to."""
    address, port = request.scope["server"]
    names = ("localhost", f"[{address}]" if ":" in address else address)
    return {f"{name}:{port}" for name in names} | (set(names) if port == _HTTP_PORT else set())


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


LINK_LASTS: Final = timedelta(minutes=10)


class LogInLinks:
    """The links that are still good. They live in this process alone and end with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiries: dict[str, datetime] = {}

    def make(self) -> str:
        """The secret part of a new link."""
        secret = new_secret()
        self._expiries[digest(secret)] = self._clock.now() + LINK_LASTS
        return secret

    def redeem(self, secret: str) -> bool:
        """Whether this is a link that is still good; it is not from now on."""
        expires_at = self._expiries.pop(digest(secret), None)
        return expires_at is not None and self._clock.now() < expires_at


COOKIE: Final = "mistnet_session"
_ADMIN: Final = "admin token"
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_BELIEVED_OPEN: Final = timedelta(seconds=1)
_DEADLINE_SECONDS: Final = 2.0
_READING: Final = {"GET", "HEAD", "OPTIONS"}
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")


class Authenticator:
    """Knows who asks. `local` is whether the service listens on a loopback address."""

    def __init__(self, app: App, *, local: bool) -> None:
        given = app.settings.admin_token
        self._admin_token = given.get_secret_value() if given else None
        self._admin_is_guessable = self._admin_token is not None and is_guessable(self._admin_token)
        self._clock = app.database.clock
        self._shown_url = app.database.shown_url
        self._local = local
        self._local_csrf = new_secret()
        self._closed = False
        self._open_since = _NEVER
        self._lasts = timedelta(hours=app.settings.session_hours)
        self.proxies = TrustedProxies(app.settings.trusted_proxies)
        self.tokens = Tokens(app.database)
        self.sessions = Sessions(app.database, self._admin_token)
        self.links = LogInLinks(self._clock)
        self.throttle = Throttle()
        self.push_throttle = Throttle()

    async def admit(self, request: Request, scope: Scope) -> Caller:
        """The visitor, if he may; a change must come from where he thinks it does."""
        visitor = await self._visitor(request)
        if visitor is None:
            raise LogInFirst(request.url.path) if _wants_a_page(request) else Unauthorized
        if visitor.scope < scope:
            raise NotAllowed(f"this takes a token with the scope {scope.word}; yours has {visitor.scope.word}")
        return visitor

    async def log_in(self, request: Request, token: str) -> str:
        """What the cookie of a person who has a token is to hold."""
        if not same_origin(request):
            raise NotAllowed("log in from the dashboard's own page; a proxy must pass on the Host header as it got it")
        visitor, kept = await self._checked(request, token, counted=True)
        return await self._begin_session(request, visitor, token_id=kept.id if kept else None)

    async def log_in_by_link(self, request: Request, secret: str) -> str | None:
        """What the cookie of a person is to hold who got a link from the terminal; None if the link is not good."""
        if not self.links.redeem(secret):
            return None
        visitor = Caller(name="terminal", scope=Scope.ADMIN)
        return await self._begin_session(request, visitor, token_id=None)

    async def log_out(self, request: Request) -> None:
        if secret := request.cookies.get(COOKIE):
            await self.sessions.end(secret)

    async def _begin_session(self, request: Request, visitor: Caller, *, token_id: int | None) -> str:
        """Always under a new secret: one that a browser brings along may be known to the one who put it there."""
        await self.log_out(request)
        now = self._clock.now()
        secret, _ = await self.sessions.begin(visitor, token_id=token_id, now=now, lasts=self._lasts)
        return secret

    @property
    def session_seconds(self) -> int:
        return int(self._lasts.total_seconds())

    async def _visitor(self, request: Request) -> Caller | None:
        if "authorization" in request.headers:
            return await self._bearer(request)
        secret = request.cookies.get(COOKIE)
        visitor = await self.sessions.find(secret, now=self._clock.now()) if secret else None
        visitor = visitor or await self._local_visitor(request)
        if visitor is None:
            return None
        checked = visitor.entry is LoginMethod.TOKEN or sent_by_a_browser(request)
        if checked and request.method not in _READING:
            await _require_csrf(request, visitor)
        return visitor

    async def _local_visitor(self, request: Request) -> Caller | None:
        """A program on this machine, where that is enough.

        Loopback is, as long as no token was made: who makes one wants it to be asked for, and on loopback a
        proxy cannot be told from a program that speaks for itself. The Unix socket always is, because the mode of
        its file says who may open it.
        """
        entry = None if self.proxies.sent(request) else local_entry(request)
        if entry is None:
            return None
        if entry is LoginMethod.LOOPBACK and (not self._local or self._admin_token or await self._is_closed()):
            return None
        return Caller(name="local", scope=Scope.ADMIN, csrf=self._local_csrf, entry=entry)

    async def _is_closed(self) -> bool:
        """Whether a token was made. They are never deleted, so that the first one found is remembered.

        That there is none is remembered for a second: to ask each time would slow every request down.
        """
        now = self._clock.now()
        if not self._closed and not self._open_since <= now < self._open_since + _BELIEVED_OPEN:
            found = await self._any_token_made()
            self._closed = self._closed or found  # another request may have found one meanwhile
            self._open_since = now
        return self._closed

    async def _any_token_made(self) -> bool:
        """A database that hangs must not keep a request hanging: without an answer no one is let in."""
        asking = asyncio.ensure_future(self.tokens.any_made())
        await asyncio.wait([asking], timeout=_DEADLINE_SECONDS)
        if asking.done():
            return asking.result()
        asking.cancel()  # not awaited: a connection that hangs takes its time to close
        raise DatabaseUnreachable(self._shown_url, f"no answer within {_DEADLINE_SECONDS:g} s")

    async def _bearer(self, request: Request) -> Caller:
        scheme, token = get_authorization_scheme_param(request.headers["authorization"])
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized
        visitor, _ = await self._checked(request, token, counted=self._is_guess(token))
        return visitor

    async def _checked(self, request: Request, token: str, *, counted: bool) -> tuple[Caller, ApiToken | None]:
        """The owner of a right token. Wrong ones are counted by address, and by the account they were a guess at.

        A token that cannot be guessed is checked before anything is counted, so that the failures of others never
        keep its owner out: behind one proxy or router, strangers have the same address. Only an admin token that
        could be guessed has to wait, and only where it was tried too often.
        """
        address = self.address_of(request)
        if self._is_guess(token) and self._admin_is_guessable:
            self._require_patience(address)
        if found := await self._by_token(token):
            return found
        if counted:
            account = _ADMIN if self._is_guess(token) else None
            self._require_patience(address, account)
            self.throttle.failed(address, account)
        raise Unauthorized

    def _is_guess(self, token: str) -> bool:
        """Other tokens have too many bits to be guessed."""
        return self._admin_token is not None and not token.startswith(TOKEN_PREFIX)

    async def _by_token(self, token: str) -> tuple[Caller, ApiToken | None] | None:
        """Any digest is looked up in the same time; the one token that is compared is compared in constant time."""
        if self._admin_token is not None and same(token, self._admin_token):
            return Caller(name=_ADMIN, scope=Scope.ADMIN), None
        kept = await self.tokens.find(token) if token.startswith(TOKEN_PREFIX) else None
        if kept is None:
            return None
        with suppress(DatabaseBusy):  # a note that comes a minute later is worth no wait
            await self.tokens.note_use(kept, now=self._clock.now())
        return Caller(name=kept.name, scope=kept.scope), kept

    def _require_patience(self, address: str, account: str | None = None) -> None:
        if wait := self.throttle.wait(address, account):
            raise TooOften(wait)

    def address_of(self, request: Request) -> str:
        """What failed tries are counted by: the client's own address, whichever proxies it came through."""
        return network_of(self.proxies.client_address(request))


def needs(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """A dependency: the visitor, if his scope is large enough."""

    async def visitor(request: Request, _bearer: _Bearer, _cookie: _Cookie) -> Caller:
        authenticator: Authenticator = request.app.state.authenticator
        admitted = await authenticator.admit(request, scope)
        request.state.visitor = admitted
        _require_json(request)
        return admitted

    visitor.scope = scope  # type: ignore[attr-defined]  # read by the tests that try every route
    return visitor


def same(given: str, secret: str) -> bool:
    """In constant time, whatever was given."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode("utf-8", "surrogatepass"))


def _wants_a_page(request: Request) -> bool:
    is_page = not request.url.path.startswith(("/api", "/webhooks", "/metrics"))
    return is_page and ("text/html" in request.headers.get("accept", "") or "hx-request" in request.headers)


def _require_json(request: Request) -> None:
    """Bodies of the API are JSON, and say so. A body that is not there need not say what it is."""
    sent = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.url.path.startswith("/api") and sent and kind != "application/json":
        raise RequestRefused(415, "send JSON, with the header Content-Type: application/json")


async def _require_csrf(request: Request, visitor: Caller) -> None:
    """A browser sends the cookie along with anybody's request; this it sends with none but ours."""
    sent = request.headers.get("x-csrf-token")
    if sent is None and request.headers.get("content-type", "").startswith(_FORMS):
        field = (await request.form()).get("csrf")
        sent = field if isinstance(field, str) else None
    if not same_origin(request) or not same(sent or "", visitor.csrf or ""):
        raise NotAllowed("the page is out of date, or another site sent this: reload the page and try again")


_Bearer = Annotated[object, Depends(HTTPBearer(auto_error=False, scheme_name="token"))]
_Cookie = Annotated[object, Depends(APIKeyCookie(name=COOKIE, auto_error=False, scheme_name="session"))]
READS: Final = [Depends(needs(Scope.READ))]
OPERATES: Final = [Depends(needs(Scope.OPERATE))]
ADMINISTERS: Final = [Depends(needs(Scope.ADMIN))]
"""For routes that need not know who asks."""

Reader = Annotated[Caller, Depends(needs(Scope.READ))]
Operator = Annotated[Caller, Depends(needs(Scope.OPERATE))]
Admin = Annotated[Caller, Depends(needs(Scope.ADMIN))]

__all__ = [
    "ADMINISTERS",
    "COOKIE",
    "OPERATES",
    "READS",
    "Admin",
    "Authenticator",
    "Caller",
    "Operator",
    "Reader",
    "Scope",
    "needs",
]
