"""The simulated Threads API: tokens, limits, paging and faults around the posts of the world."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from mistnet.sim.clock import from_ms, to_ms
from mistnet.sim.faults import BODY_FAULTS, REFUSALS, Decision, Faults, SimFault, malformed
from mistnet.sim.service import BAD_GATEWAY, ServiceStats, SimAnswer, Unreliable, damage, json_answer
from mistnet.sim.threads_world import ThreadsPost, ThreadsRenderer, ThreadsWorld
from mistnet.sim.world import World

VERSION = "/v1.0/"
TOKEN_PATHS = ("/refresh_access_token", "/access_token", "/debug_token")
DEFAULT_TOKEN = "THAAsim-long-lived-token"  # noqa: S105 - valid in the simulator only
TOKEN_DAYS = 60
DAY_SECONDS = 86_400
LARGEST_PAGE = 100
DEFAULT_PAGE = 25
SCOPES = ("threads_basic", "threads_read_replies", "threads_profile_discovery")
Params = Mapping[str, str]


class GraphError(Exception):
    """An error in the format of the Graph API."""

    def __init__(self, status: int, code: int, message: str, subcode: int | None = None, **more: Any) -> None:
        super().__init__(message)
        payload = {"message": message, "type": "THApiException", "code": code, **more, "fbtrace_id": "AbCdEf"}
        self.status, self.code = status, code
        self.body = {"error": payload if subcode is None else {**payload, "error_subcode": subcode}}


@dataclass(slots=True)
class SimToken:
    issued_at: datetime
    expires_at: datetime
    scopes: tuple[str, ...] = SCOPES


class ThreadsService(Unreliable[ServiceStats]):
    """`owner` is the star of the token. `page_limit` makes pages shorter than requested, as the real API may."""

    def __init__(
        self,
        world: World,
        now: Callable[[], datetime],
        *,
        token: str = DEFAULT_TOKEN,
        owner: int = 0,
        faults: Faults | None = None,
        page_limit: int = LARGEST_PAGE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(ServiceStats(), faults, sleep)
        self.threads = ThreadsWorld(world)
        self.now = now
        self.owner = world.people[owner]
        self.page_limit = page_limit
        self.usage = 0.0
        issued = now() - timedelta(days=2)
        self.tokens = {token: SimToken(issued, issued + timedelta(days=TOKEN_DAYS))}
        self._renderer = ThreadsRenderer(self.threads)
        self._lists: Mapping[str, Callable[[Params, int], Sequence[ThreadsPost]]] = {
            "me/threads": lambda _, now_ms: self.threads.roots(self.owner.index, now_ms),
            "me/replies": lambda _, now_ms: self.threads.replies_of(self.owner.index, now_ms),
            "profile_posts": lambda params, now_ms: self.threads.roots(self._found(params, now_ms).index, now_ms),
        }
        self._scopes = {
            "me/replies": "threads_read_replies",
            "profile_lookup": "threads_profile_discovery",
            "profile_posts": "threads_profile_discovery",
            "conversation": "threads_read_replies",
        }

    @staticmethod
    def knows(path: str) -> bool:
        return path.startswith(VERSION) or path in TOKEN_PATHS

    async def handle(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        body: bytes = b"",  # noqa: ARG002 - part of a request, though nothing here reads it
    ) -> SimAnswer:
        """Answer one request, or raise NeverAnswers."""
        params = dict(parse_qsl(query, keep_blank_values=True))
        given = params.pop("access_token", "") or headers.get("authorization", "").removeprefix("Bearer ")
        try:
            # Tokens are checked before anything else, so that a wrong one learns nothing.
            token = self._admitted(given)
            answer = await self._answer(method, path, params, token, given)
        except GraphError as refused:
            answer = self._written(refused.status, refused.body)
        self.stats.statuses[answer.status] += 1
        return answer

    def _admitted(self, given: str) -> SimToken:
        token = self.tokens.get(given)
        if token is None:
            raise GraphError(400, 190, f"Invalid OAuth access token - Cannot parse {given}", type="OAuthException")
        if token.expires_at <= self.now():
            raise GraphError(400, 190, "Error validating access token: Session has expired", 463, type="OAuthException")
        return token

    async def _answer(self, method: str, path: str, params: Params, token: SimToken, given: str) -> SimAnswer:
        if method != "GET":
            raise GraphError(400, 100, f"Unsupported request - method type: {method.lower()}")
        if path in TOKEN_PATHS:
            return self._written(200, self._about_tokens(path, params, given))
        name = path.removeprefix(VERSION).strip("/")
        endpoint = name.rpartition("/")[2] if name.partition("/")[0].isdecimal() else name
        self.stats.calls["media" if endpoint == name and name.isdecimal() else endpoint] += 1
        if (needed := self._scopes.get(endpoint)) and needed not in token.scopes:
            raise GraphError(403, 10, f"Application does not have permission for this action: {needed}")
        question = f"{path}?{urlencode(sorted(params.items()))}"
        decision = await self._decide(question)
        if decision.fault in REFUSALS:
            self._note(question, decision.fault)
            return refusal(decision)
        now_ms = to_ms(self.now())
        sheet, fault = self._sheet(name, params, now_ms), decision.fault
        if fault is not None and fault not in BODY_FAULTS:
            fault = fault if sheet and spoil(sheet, fault, decision.luck) else None
        self._note(question, fault)
        if sheet is None:
            return damage(self._written(200, self._single(name, params, now_ms)), fault)
        self.stats.spoiled += sheet.spoiled
        following = f"https://graph.threads.net{VERSION}{name}?{urlencode({**params, 'access_token': given})}"
        return damage(self._written(200, sheet.body(following)), fault)

    def _sheet(self, name: str, params: Params, now_ms: int) -> Sheet | None:
        """A page of a list; None for a request of a single object."""
        about, _, edge = name.partition("/")
        if name in self._lists:
            posts = self._lists[name](params, now_ms)
        elif about.isdecimal() and edge == "conversation":
            posts = self.threads.below(self._require_shown(int(about), now_ms).id, now_ms)
            posts = posts if params.get("reverse", "true") == "true" else posts[::-1]
        else:
            return None
        limit = params.get("limit", "")
        size = min(max(int(limit), 1), LARGEST_PAGE) if limit.isdecimal() else DEFAULT_PAGE
        size = min(size, self.page_limit)
        here = params.get("after", "")
        start = _place(posts, here)
        shown = posts[start : start + size]
        fields = params.get("fields", "id")
        return Sheet(
            records=[self._renderer.post(each, now_ms, fields, own=self._is_own(each)) for each in shown],
            cursor=_cursor(shown[-1]) if start + size < len(posts) else "",
            here=here or _cursor(None),
            above=[self._renderer.post(each, now_ms, fields) for each in posts[max(start - size, 0) : start]],
        )

    def _single(self, name: str, params: Params, now_ms: int) -> object:
        fields = params.get("fields", "id")
        if name == "me":
            return self._renderer.own_profile(self.owner, now_ms, fields)
        if name == "profile_lookup":
            return self._renderer.public_profile(self._found(params, now_ms), now_ms)
        if name.isdecimal():
            post = self._require_shown(int(name), now_ms)
            return self._renderer.post(post, now_ms, fields, own=self._is_own(post))
        raise GraphError(400, 100, f"Unsupported get request. Object with ID '{name}' does not exist", 33)

    def _is_own(self, post: ThreadsPost) -> bool:
        return post.author == self.owner.index

    def _found(self, params: Params, now_ms: int) -> Any:
        handle = params.get("username", "")
        person = self.threads.holder(handle, now_ms)
        if person is not None:
            return person
        if self.threads.world.holder(handle, now_ms):
            raise GraphError(400, 100, "The requested profile is not available")
        raise GraphError(400, 100, f"Unsupported get request. Object with ID '{handle}' does not exist", 33)

    def _require_shown(self, post_id: int, now_ms: int) -> ThreadsPost:
        post = self.threads.post(post_id)
        if post is None or not self.threads.is_shown(post, now_ms):
            raise GraphError(400, 100, f"Unsupported get request. Object with ID '{post_id}' does not exist", 33)
        return post

    def _about_tokens(self, path: str, params: Params, given: str) -> object:
        self.stats.calls[path.strip("/")] += 1
        if path == "/debug_token":
            asked = self._admitted(params.get("input_token", ""))
            times = {"issued_at": int(asked.issued_at.timestamp()), "expires_at": int(asked.expires_at.timestamp())}
            return {"data": {"type": "USER", "is_valid": True, "scopes": list(asked.scopes), **times}}
        if path != "/refresh_access_token" or params.get("grant_type") != "th_refresh_token":
            raise GraphError(400, 100, "Unsupported grant type")
        old, now = self.tokens[given], self.now()
        # As upstream: a young token cannot be refreshed.
        if now - old.issued_at < timedelta(days=1):
            raise GraphError(400, 100, "The token must be at least 24 hours old")
        fresh = f"{given.partition('~')[0]}~{len(self.tokens)}"
        self.tokens[fresh] = SimToken(now, now + timedelta(days=TOKEN_DAYS), old.scopes)
        return {"access_token": fresh, "token_type": "bearer", "expires_in": TOKEN_DAYS * DAY_SECONDS}

    def _written(self, status: int, value: object) -> SimAnswer:
        usage = {"call_count": round(self.usage), "total_cputime": round(self.usage / 2), "total_time": 1}
        date = format_datetime(from_ms(to_ms(self.now())), usegmt=True)
        return json_answer(status, value, date=date, **{"x-app-usage": json.dumps(usage)})


def _cursor(post: ThreadsPost | None) -> str:
    place = f"{post.at_ms}:{post.id}" if post else "start"
    return "QVFI" + urlsafe_b64encode(place.encode()).decode()


def _place(posts: Sequence[ThreadsPost], cursor: str) -> int:
    """The index after the post of a cursor, which may be deleted by now."""
    if not cursor:
        return 0
    try:
        place = urlsafe_b64decode(cursor.removeprefix("QVFI").encode()).decode()
        if place == "start":
            return 0
        at_ms, _, post_id = place.partition(":")
        last = (-int(at_ms), -int(post_id))
    except (NotBase64, ValueError) as error:
        raise GraphError(400, 100, "Invalid cursors values") from error
    # With `reverse=false` a conversation is listed oldest first.
    latest_first = [(-post.at_ms, -post.id) for post in posts]
    if latest_first == sorted(latest_first):
        return sum(place <= last for place in latest_first)
    return sum(place >= last for place in latest_first)


@dataclass(slots=True, kw_only=True)
class Sheet:
    """One page. `here` leads to this same page again; `above` are the posts of the page before it."""

    records: list[dict[str, Any]] | None
    cursor: str
    here: str
    above: list[dict[str, Any]]
    missing: bool = False
    spoiled: list[str] = field(default_factory=list)

    def body(self, address: str) -> dict[str, Any]:
        """`next` contains the caller's token, as in the real API."""
        payload: dict[str, Any] = {} if self.missing else {"data": self.records}
        if not self.cursor and not self.records:
            return payload
        cursors = {"before": self.here, "after": self.cursor or self.here}
        following = {"next": f"{address}&after={self.cursor}"} if self.cursor else {}
        return {**payload, "paging": {"cursors": cursors, **following}}


def spoil(sheet: Sheet, fault: SimFault, luck: int) -> bool:
    """Apply a fault to a page; False if it does not apply to this page."""
    records = sheet.records or []
    match fault:
        case SimFault.EMPTY_CLAIMS_MORE:
            sheet.records, sheet.cursor = [], sheet.here
        case SimFault.EMPTY_CLAIMS_END if records:
            sheet.records, sheet.cursor = [], ""
        case SimFault.DUPLICATE_POSTS if records:
            place = luck % len(records)
            sheet.records = [*records[: place + 1], records[place], *records[place + 1 :]]
        case SimFault.REPEATED_PAGE | SimFault.STUCK_CEILING if sheet.above:
            sheet.records, sheet.cursor = sheet.above, sheet.here
        case SimFault.LOOPING_CURSOR if sheet.cursor:
            sheet.cursor = sheet.here
        case SimFault.MISSING_RECORDS:
            sheet.missing = True
        case SimFault.NULL_DATA:
            sheet.records = None
        case SimFault.MALFORMED_POST if records:
            place = luck % len(records)
            sheet.spoiled.append(str(records[place]["id"]))
            post = malformed(records[place], luck, {"username": ["someone"]}, {"timestamp": 20261001})
            sheet.records = [*records[:place], post, *records[place + 1 :]]
        case _:
            return False
    return True


def refusal(decision: Decision) -> SimAnswer:
    match decision.fault:
        case SimFault.RATE_LIMITED:
            return _error(403, {"message": "Application request limit reached", "code": 4})
        case SimFault.RATE_LIMITED_WITH_WAIT:
            wait = str(1 + decision.luck % 10)
            return _error(429, {"message": "User request limit reached", "code": 17}, **{"retry-after": wait})
        case SimFault.KEY_REFUSED:
            return _error(400, {"message": "An unexpected error has occurred", "code": 2, "is_transient": True})
        case SimFault.SERVER_ERROR:
            status = (500, 502, 503)[decision.luck % 3]
            return _error(status, {"message": "An unknown error occurred", "code": 1})
        case _:
            return BAD_GATEWAY


def _error(status: int, payload: dict[str, Any], **headers: str) -> SimAnswer:
    return json_answer(status, {"error": {"type": "OAuthException", **payload, "fbtrace_id": "AbCdEf"}}, **headers)
