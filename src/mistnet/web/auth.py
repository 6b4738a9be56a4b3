"""Authentication: tokens for programs, cookies for people, open access on a loopback address without tokens."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from mistnet.app import App
from mistnet.kit.clock import Clock
from mistnet.kit.errors import DatabaseBusy, DatabaseUnreachable
from mistnet.web.clients import Throttle, TrustedProxies, is_from_browser, local_entry, network_of, same_origin
from mistnet.web.errors import LogInFirst, NotAllowed, RequestRefused, TooOften, Unauthorized
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

LINK_LASTS: Final = timedelta(minutes=10)


class LogInLinks:
    """One-time log-in links. They exist only in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiries: dict[str, datetime] = {}

    def make(self) -> str:
        """Make the secret part of a new link."""
        secret = new_secret()
        self._expiries[digest(secret)] = self._clock.now() + LINK_LASTS
        return secret

    def redeem(self, secret: str) -> bool:
        """Whether this link is valid. It can be used once."""
        expires_at = self._expiries.pop(digest(secret), None)
        return expires_at is not None and self._clock.now() < expires_at


COOKIE: Final = "mistnet_session"
_ADMIN: Final = "admin token"
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_OPEN_CACHED: Final = timedelta(seconds=1)
_DEADLINE_SECONDS: Final = 2.0
_SAFE_METHODS: Final = {"GET", "HEAD", "OPTIONS"}
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")


class Authenticator:
    """Authenticates requests. `local` says whether the service listens on a loopback address."""

    def __init__(self, app: App, *, local: bool) -> None:
        given = app.settings.admin_token
        self._admin_token = given.get_secret_value() if given else None
        self._admin_is_guessable = self._admin_token is not None and is_guessable(self._admin_token)
        self._clock = app.database.clock
        self._shown_url = app.database.shown_url
        self._local = local
        # A caller without a session has no token of its own.
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
        """Authenticate the caller and check the scope. State-changing requests with a cookie also need a CSRF token."""
        headers = request.headers
        caller: Caller | None
        if "authorization" in headers:
            scheme, token = get_authorization_scheme_param(headers["authorization"])
            if scheme.lower() != "bearer" or not token:
                raise Unauthorized
            caller, _ = await self._check_token(request, token, counted=self._is_guess(token))
        else:
            caller = await self.recognize(request)
            if caller is None:
                # Requests of htmx accept anything, so that their header does not name HTML.
                wants_a_page = "text/html" in headers.get("accept", "") or "hx-request" in headers
                if wants_a_page and not request.url.path.startswith(("/api", "/webhooks", "/metrics")):
                    raise LogInFirst(request.url.path)
                raise Unauthorized
            # A browser adds cookies, and reaches loopback, for any site: a local program that is no browser does not.
            from_browser = caller.entry is LoginMethod.TOKEN or is_from_browser(request)
            if from_browser and request.method not in _SAFE_METHODS:
                await _require_csrf(request, caller)
        if caller.scope < scope:
            raise NotAllowed(f"this needs a token with the scope {scope.word}; yours has {caller.scope.word}")
        return caller

    async def log_in(self, request: Request, token: str) -> str:
        """Start a session with a token. Return the content of its cookie."""
        # Another site could otherwise log a browser in with the attacker's token, and read what is entered then.
        if not same_origin(request):
            raise NotAllowed("log in from the dashboard's own page; a proxy must pass on the Host header unchanged")
        caller, stored = await self._check_token(request, token, counted=True)
        return await self._begin_session(request, caller, token_id=stored.id if stored else None)

    async def log_in_by_link(self, request: Request, secret: str) -> str | None:
        """Start a session with a one-time link. Return the content of its cookie; None: the link is invalid."""
        if not self.links.redeem(secret):
            return None
        return await self._begin_session(request, Caller(name="terminal", scope=Scope.ADMIN), token_id=None)

    async def log_out(self, request: Request) -> None:
        if secret := request.cookies.get(COOKIE):
            await self.sessions.end(secret)

    async def _begin_session(self, request: Request, caller: Caller, *, token_id: int | None) -> str:
        """Always with a new secret: an attacker may have planted the one that the browser sends (session fixation)."""
        await self.log_out(request)
        return await self.sessions.begin(caller, token_id=token_id, now=self._clock.now(), lasts=self._lasts)

    @property
    def session_seconds(self) -> int:
        return int(self._lasts.total_seconds())

    async def recognize(self, request: Request) -> Caller | None:
        """The caller by cookie, or a program on this machine, where that is enough.

        On loopback it is until a token is made: then tokens are required, because a proxy on loopback cannot be told
        from a local program. On the Unix socket it always is: the mode of its file says who may open it.

        Nothing may be changed for the caller: its CSRF token is not checked here.
        """
        secret = request.cookies.get(COOKIE)
        if secret and (caller := await self.sessions.find(secret, now=self._clock.now())):
            return caller
        entry = None if self.proxies.sent(request) else local_entry(request)
        if entry is None:
            return None
        if entry is LoginMethod.LOOPBACK and (not self._local or self._admin_token or await self._is_closed()):
            return None
        return Caller(name="local", scope=Scope.ADMIN, csrf=self._local_csrf, entry=entry)

    async def _is_closed(self) -> bool:
        """Whether a token was made. Tokens are never deleted, so a yes is cached forever.

        A no is cached for a second: a query for each request would slow all of them down.
        """
        now = self._clock.now()
        if not self._closed and not self._open_since <= now < self._open_since + _OPEN_CACHED:
            query = asyncio.ensure_future(self.tokens.any_made())
            await asyncio.wait([query], timeout=_DEADLINE_SECONDS)
            if not query.done():
                # A database that hangs must not hang every request, and without its answer no one is admitted.
                query.cancel()  # not awaited: a hanging connection takes long to close
                raise DatabaseUnreachable(self._shown_url, f"no answer within {_DEADLINE_SECONDS:g} s")
            self._closed = self._closed or query.result()  # another request may have set it during the await
            self._open_since = now
        return self._closed

    async def _check_token(self, request: Request, token: str, *, counted: bool) -> tuple[Caller, ApiToken | None]:
        """The owner of a valid token. Invalid ones are counted by address, and by the account they guess at.

        A valid token is accepted whatever the counts say: behind one proxy or router strangers share an address, and
        their failures must not lock its owner out. Only a guessable admin token has to wait, where it failed too often.
        """
        address = self.address_of(request)
        if self._is_guess(token) and self._admin_is_guessable:
            self._require_wait(address)
        # Comparing in constant time, or looking a hash up, response times reveal nothing of a token.
        if self._admin_token is not None and same(token, self._admin_token):
            return Caller(name=_ADMIN, scope=Scope.ADMIN), None
        if token.startswith(TOKEN_PREFIX) and (stored := await self.tokens.find(token)):
            with suppress(DatabaseBusy):  # the time of use is not worth a wait
                await self.tokens.note_use(stored, now=self._clock.now())
            return Caller(name=stored.name, scope=stored.scope), stored
        if counted:
            account = _ADMIN if self._is_guess(token) else None
            self._require_wait(address, account)
            self.throttle.count_failure(address, account)
        raise Unauthorized

    def _is_guess(self, token: str) -> bool:
        """Whether this could be an attempt at the admin token. Other tokens have too many bits to be guessed."""
        return self._admin_token is not None and not token.startswith(TOKEN_PREFIX)

    def _require_wait(self, address: str, account: str | None = None) -> None:
        if wait := self.throttle.wait(address, account):
            raise TooOften(wait)

    def address_of(self, request: Request) -> str:
        """The network of the client, by which failed attempts are counted, whichever proxies it came through."""
        return network_of(self.proxies.client_address(request))


def needs(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """A dependency: the authenticated caller, whose scope includes this one."""

    async def caller(request: Request, _bearer: _Bearer, _cookie: _Cookie) -> Caller:
        authenticator: Authenticator = request.app.state.authenticator
        admitted = await authenticator.admit(request, scope)
        # The page that shows a later error needs the caller.
        request.state.caller = admitted
        # Browsers send such a body to another site only after a CORS preflight.
        has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.url.path.startswith("/api") and has_body and media_type != "application/json":
            raise RequestRefused(415, "send JSON, with the header Content-Type: application/json")
        return admitted

    caller.scope = scope  # type: ignore[attr-defined]  # read by the tests that call every route
    return caller


def same(sent: str, secret: str) -> bool:
    """Compare in constant time."""
    # As bytes: it refuses text with other letters than those of ASCII.
    return hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), secret.encode("utf-8", "surrogatepass"))


async def _require_csrf(request: Request, caller: Caller) -> None:
    """A browser adds the cookie to requests of any site. Only our own pages know this token."""
    sent = request.headers.get("x-csrf-token")
    if sent is None and request.headers.get("content-type", "").startswith(_FORMS):
        field = (await request.form()).get("csrf")
        sent = field if isinstance(field, str) else None
    if not same_origin(request) or not same(sent or "", caller.csrf or ""):
        raise NotAllowed("the page is out of date, or another site sent this: reload the page and try again")


_Bearer = Annotated[object, Depends(HTTPBearer(auto_error=False, scheme_name="token"))]
_Cookie = Annotated[object, Depends(APIKeyCookie(name=COOKIE, auto_error=False, scheme_name="session"))]
READS: Final = [Depends(needs(Scope.READ))]
OPERATES: Final = [Depends(needs(Scope.OPERATE))]
"""For routes that do not use the caller."""

Reader = Annotated[Caller, Depends(needs(Scope.READ))]
Operator = Annotated[Caller, Depends(needs(Scope.OPERATE))]
Admin = Annotated[Caller, Depends(needs(Scope.ADMIN))]
