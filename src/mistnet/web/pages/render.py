"""Renders pages: what their routes get, the navigation, the template environment, which escapes all, its filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mistnet import __version__
from mistnet.app import App
from mistnet.kit import text as amounts
from mistnet.kit.text import counted
from mistnet.shops.model import LinkPlace
from mistnet.sources.x.client import format_dollars
from mistnet.web.auth import Operator, Reader
from mistnet.web.pages.dashboard import Dashboard
from mistnet.web.tokens import Caller, Scope

STATIC: Final = Path(__file__).parents[1] / "static"
_TEMPLATES: Final = Path(__file__).parents[1] / "templates"
_URL: Final = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)\]}]")
_SAFE: Final = ("https://", "http://")
_NONE: Final = "\u2013"
_STEPS: Final = ((60, "s"), (60, "min"), (24, "h"), (365, "d"))
_SIZES: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_SHADES: Final = 8
_PLACE_WORDS: Final[Mapping[str, str]] = {
    LinkPlace.TEXT: "in the text",
    LinkPlace.ENTITY: "in the links of the post",
    LinkPlace.ATTACHMENT: "in the attachment",
    LinkPlace.TEXT_ATTACHMENT: "in the text of the attachment",
    LinkPlace.QUOTED: "in the quoted post",
}
_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGES: Final = {
    "added": "Added. Its profile is looked up next, then its posts are collected.",
    "known": "It is tracked already. New posts are being collected.",
    "suggested": "It is suggested already and will be looked up.",
    "untracked": "It is not collected any more. Collected posts stay.",
    "retried": "The job is due now, with all its attempts.",
    "not-retried": "Nothing to do: the job is running or due, or another job does the same.",
    "cancelled": "The job is cancelled.",
    "run-cancelled": "The run is cancelled. Collected posts stay.",
    "not-cancelled": "The job had already ended.",
    "accepted": "The gaps are accepted. Their jobs have ended.",
    "alert-accepted": "The alert is accepted. It is shown again if it gets worse.",
    "requeued": "Failed jobs are retried.",
    "paused": "Paused. No call is made until it is resumed. Nothing is lost.",
    "resumed": "Resumed. Work that waited for it is due.",
    "limits": "The limits are set for all machines.",
    "breaker-opened": "The breaker is open. After a while one call probes the source.",
    "breaker-closed": "The breaker is closed, and its failure count is 0. Work that waited for it is due.",
    "forgotten": "Its cached responses are deleted.",
    "started": "The run has started.",
    "defined": "The segment is defined and will be materialized.",
    "materializing": "It will be materialized. What it needs is fetched first.",
    "enabled": "Enabled. It is materialized on its schedule and on request.",
    "disabled": "Disabled. Its members and its history stay.",
    "disabled-segment": "The segment is disabled. Enable it first.",
    "not-accepted": "No gap matches.",
    "not-requeued": "No jobs to requeue.",
    "feed-added": "The feed is added and will be polled.",
    "feed-known": "It is a feed already.",
    "feed-again": "It was refused before and is tried again.",
    "feed-removed": "The feed is removed. Collected posts stay.",
    "feed-polled": "It will be polled now. Its new links appear among the links.",
    "item-added": "Added. Its sources are queried in the next round.",
    "item-known": "This item exists already.",
    "item-asked": "Its sources will be queried. Their prices appear here.",
    "item-asked-already": "Its sources are being queried already, or none serves it.",
    "item-pause": "Paused. No source is queried until it is resumed.",
    "item-resume": "Resumed. Its sources are queried in the next round.",
    "item-remove": "Removed. Its points and valuations stay.",
    "dismissed": "The refused handle is removed from the list.",
    "repairing": "All of its posts are read again. Missing ones appear here.",
    "not-confirmed": "Nothing was started. Confirm the price of these lists first.",
    "syncing": "The lists will be read. Their changes appear here.",
}
"""Messages after a change, by a word in the URL: an attacker cannot make a page show other text."""


class Tab(msgspec.Struct, frozen=True):
    """A page in the navigation. `also` are the beginnings of other paths that belong to it."""

    href: str
    name: str
    also: tuple[str, ...] = ()

    def holds(self, path: str) -> bool:
        return path == self.href or any(path.startswith(f"{each}/") for each in (self.href, *self.also) if each != "/")


class Entry(msgspec.Struct, frozen=True):
    """One entry of the menu. It leads to its first tab; the tabs are shown if there are several."""

    name: str
    tabs: tuple[Tab, ...]

    @property
    def href(self) -> str:
        return self.tabs[0].href


class Shown(msgspec.Struct, frozen=True):
    """The navigation as one page shows it: with the entry and the tab that the page belongs to."""

    entries: Sequence[Entry]
    path: str
    entry: Entry | None
    tab: Tab | None

    @property
    def tabs(self) -> Sequence[Tab]:
        return self.entry.tabs if self.entry and len(self.entry.tabs) > 1 else ()


def navigation(entries: Sequence[Entry], path: str) -> Shown:
    """The navigation on the page at this path."""
    places = ((entry, tab) for entry in entries for tab in entry.tabs)
    entry, tab = next(((entry, tab) for entry, tab in places if tab.holds(path)), (None, None))
    return Shown(entries, path, entry, tab)


class PageRequest:
    """A request for a page: who sent it, and what its route reads from."""

    def __init__(self, request: Request, caller: Caller) -> None:
        self.caller = caller
        self.app: App = request.app.state.mistnet
        self.dashboard: Dashboard = request.app.state.dashboard
        self._request = request

    @property
    def now(self) -> datetime:
        return self.app.database.clock.now()

    async def ask(self, question: str, text: str, *, button: str, back: str) -> HTMLResponse:
        """Ask before a change that is large or cannot be undone: the form as it was sent, to be sent once more."""
        sent = (await self._request.form()).multi_items()
        fields = [each for each in sent if each[0] not in ("csrf", "confirmed") and isinstance(each[1], str)]
        action = self._request.url.path
        return self.render(
            "confirm.html", question=question, text=text, button=button, back=back, action=action, fields=fields
        )

    def render(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        return render_page(self._request, template, self.caller, status=status, **values)


async def reader_page(request: Request, caller: Reader) -> PageRequest:
    return PageRequest(request, caller)


async def operator_page(request: Request, caller: Operator) -> PageRequest:
    return PageRequest(request, caller)


ReaderPage = Annotated[PageRequest, Depends(reader_page)]
Confirmed = Annotated[str, Form(max_length=10)]
"""Whether a form was sent from the page that `PageRequest.ask` shows."""

OperatorPage = Annotated[PageRequest, Depends(operator_page)]


def redirect_to(path: str, did: str) -> RedirectResponse:
    """Show a page after a change, with a message about it."""
    # 303 makes the browser use GET, so that reloading does not send the form again.
    return RedirectResponse(f"{path}{'&' if '?' in path else '?'}did={did}", 303)


def render_page(
    request: Request, template: str, caller: Caller | None, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page with the values that all pages share: the caller, the message, the URL."""
    common: Mapping[str, Any] = {
        "caller": caller,
        "operates": caller is not None and caller.scope >= Scope.OPERATE,
        "csrf": (caller and caller.csrf) or "",
        "did": _MESSAGES.get(request.query_params.get("did", "")),
        "navigation": navigation(request.app.state.entries, request.url.path),
        "here": str(request.url.remove_query_params("did").replace(scheme="", netloc="")),
        "now": request.app.state.mistnet.database.clock.now(),
        "seen": getattr(request.state, "seen", ""),
    }
    return HTMLResponse(environment().get_template(template).render({**common, **values}), status)


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        # Almost everything that pages show was written by strangers.
        autoescape=True,
        # A misspelt name must fail in a test instead of showing nothing.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        number,
        short,
        dollars,
        span,
        at,
        linkify,
        with_code,
        safe_url,
        shade,
        initial,
        money,
        lasting,
        percent,
        seconds,
        noun,
        sentence,
        place_words,
    )
    made.filters |= {each.__name__: each for each in filters} | {"counted": shown_count, "bytes": shown_bytes}
    made.globals |= {"static": static, "version": __version__}
    return made


@cache
def static(name: str) -> str:
    """The URL of an asset. It contains a hash of the content, so that browsers may cache it forever."""
    return f"/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"


def shown_count(value: int | None, one: str, many: str | None = None) -> str:
    return _NONE if value is None else counted(value, one, many)


def noun(value: int | None, one: str, many: str | None = None) -> str:
    """The word beside a number that stands apart from it."""
    return one if value == 1 else many or f"{one}s"


def sentence(text: str) -> str:
    """Text that begins with a capital, unless it begins with a name or an identifier."""
    first = text.partition(" ")[0].rstrip(",:;.")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() and len(first) > 1 else text


def place_words(place: str) -> str:
    """Where in a post a link was found."""
    return _PLACE_WORDS.get(place, place.replace("_", " "))


def short(value: int | None) -> str:
    """1,234 whole, then 12.3k, 1.2M."""
    if value is None:
        return _NONE
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**4, "k")):
        if value >= size:
            shown = value / (1000 if letter == "k" else size)
            return f"{shown:.0f}{letter}" if shown >= 100 else f"{shown:.1f}{letter}"
    return f"{value:,}"


def money(amount: Decimal | None, currency: str | None = None) -> str:
    """An amount with all its digits."""
    return amounts.money(amount, currency) or _NONE


def seconds(amount: float) -> str:
    return lasting(timedelta(seconds=amount))


def shown_bytes(amount: int | None) -> str:
    if amount is None:
        return _NONE
    size, unit = next((each for each in _SIZES if amount >= each[0]), _SIZES[-1])
    return f"{amount / size:,.1f} {unit}"


def percent(share: Decimal) -> str:
    return f"{share:+,f} %" if share else "0 %"


def dollars(credits_spent: int | None) -> str:
    return "" if credits_spent is None else format_dollars(credits_spent)


def span(since: datetime, until: datetime) -> str:
    """The time between two moments, in the largest unit that fits."""
    left = abs((until - since).total_seconds())
    for size, unit in _STEPS:
        if left < size:
            return f"{left:.0f} {unit}"
        left /= size
    return f"{left:.1f} y"


def lasting(duration: timedelta | None) -> str:
    return _NONE if duration is None else span(_ORIGIN, _ORIGIN + duration)


def at(moment: datetime | None, now: datetime | None = None) -> Markup:
    """A time: how long ago if `now` is given, with the full time as a tooltip."""
    if moment is None:
        return escape(_NONE)
    whole = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if now is None:
        shown = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
    else:
        shown = f"{span(moment, now)} ago" if moment <= now else f"in {span(now, moment)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), whole, shown)


def with_code(text: str) -> Markup:
    """Text with what is between backticks as code. All other text is escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick
        return escape(text)
    shown = [Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return Markup("").join(shown)


def wrap_matches(text: str, pattern: re.Pattern[str], wrap: Callable[[str], Markup]) -> Markup:
    """Text with its matches as HTML. All other text is escaped."""
    parts: list[Markup] = []
    end = 0
    for match in pattern.finditer(text):
        if match[0]:
            parts += [escape(text[end : match.start()]), wrap(match[0])]
            end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def linkify(text: str) -> Markup:
    """Text with its URLs as links."""
    # noopener and noreferrer: the other site gets neither this window nor the address of this page.
    link = Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>')
    return wrap_matches(text, _URL, lambda url: link.format(url, url.partition("://")[2]))


def mark_matches(text: str, pattern: re.Pattern[str]) -> Markup:
    """Text with matches of the pattern in <mark>."""
    return wrap_matches(text, pattern, Markup("<mark>{}</mark>").format)


def safe_url(url: str | None) -> str | None:
    """The URL if it is http or https. A profile may contain `javascript:`."""
    return url if url and url.lower().startswith(_SAFE) else None


def shade(user_id: int) -> int:
    """One of a few colours, always the same for one user."""
    return (user_id >> 3) % _SHADES


def initial(name: str | None) -> str:
    return next((letter.upper() for letter in name or "" if letter.isalnum()), "?")
