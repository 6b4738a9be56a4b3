"""Turns values into pages: templates that escape everything, and the few words they share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mistnet import __version__
from mistnet.kit import text as amounts
from mistnet.kit.text import counted
from mistnet.sources.x.client import shown_dollars
from mistnet.web.tokens import Caller, Scope

STATIC: Final = Path(__file__).parents[1] / "static"
_TEMPLATES: Final = Path(__file__).parents[1] / "templates"
_URL: Final = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)\]}]")
_SAFE: Final = ("https://", "http://")
_NONE: Final = "\u2013"
_STEPS: Final = ((60, "s"), (60, "min"), (24, "h"), (365, "d"))
_SHADES: Final = 8
_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DID: Final = {
    "added": "Asked for. Its profile is looked up next, then its posts come in.",
    "known": "It is tracked already; what is new is being collected.",
    "suggested": "It is suggested already and will be looked up.",
    "untracked": "It is not collected any more. What was collected stays.",
    "retried": "The job is due now, with all its attempts.",
    "not-retried": "Nothing to do: a worker is on it, it is due already, or another job does the same.",
    "cancelled": "The job is cancelled.",
    "run-cancelled": "The run is over. What it has collected stays.",
    "not-cancelled": "The job had ended already.",
    "accepted": "The gaps are accepted: they are ended for good.",
    "alert-accepted": "The alert is accepted. It is shown again if it gets worse.",
    "requeued": "The jobs that ended without a result are tried anew.",
    "paused": "Paused. No call is made until it is resumed; nothing is lost.",
    "resumed": "It goes on; work that waited for it is due.",
    "limits": "The limits are set, for all machines.",
    "breaker-opened": "The breaker is open. No call is made for a while; then one tries.",
    "breaker-closed": "The breaker is closed, and failures are counted from nought; work that waited for it is due.",
    "forgotten": "What was kept of it is forgotten and will be asked for anew.",
    "started": "The run has begun.",
    "defined": "The segment is defined and will be materialized.",
    "materializing": "It will be materialized; what it needs is fetched first.",
    "enabled": "It is materialized again, at its times and when asked.",
    "disabled": "It is not materialized any more. Its members and its history stay.",
    "disabled-segment": "It is disabled; enable it first.",
    "not-accepted": "No gap is like that.",
    "not-requeued": "Nothing was to be tried anew.",
    "feed-added": "The feed is added and will be read.",
    "feed-known": "It is a feed already.",
    "feed-again": "It was refused before; it is tried again.",
    "feed-removed": "The feed is not read any more. What was collected stays.",
    "feed-polled": "It will be read now; what is new appears among the links.",
    "item-added": "It is followed: its sources are asked at the next look.",
    "item-known": "It is followed already, just so.",
    "item-asked": "Its sources will be asked; what they tell appears here.",
    "item-asked-already": "Its sources are being asked already, or none serves it.",
    "item-pause": "Paused. No source is asked for it until it is resumed.",
    "item-resume": "It is followed again; its sources are asked at the next look.",
    "item-remove": "It is not followed any more. Its points and valuations stay.",
    "dismissed": "The refused handle is off the list.",
    "repairing": "All of its posts are read again; what was left out appears here.",
    "not-confirmed": "Nothing is read: these lists need a confirmation of their price. Tick the box first.",
    "syncing": "The lists will be read; who came and went appears here.",
}
"""What a page may say after a change, by a word in its address: nobody can put other words there."""


def page(request: Request, template: str, visitor: Caller | None, *, status: int = 200, **shown: Any) -> HTMLResponse:
    """A page with what all pages have: who looks, what just happened, where we are."""
    common: Mapping[str, Any] = {
        "visitor": visitor,
        "operates": visitor is not None and visitor.scope >= Scope.OPERATE,
        "csrf": (visitor and visitor.csrf) or "",
        "did": _DID.get(request.query_params.get("did", "")),
        "path": request.url.path,
        "navigation": request.app.state.navigation,
        "here": str(request.url.remove_query_params("did").replace(scheme="", netloc="")),
        "now": request.app.state.mistnet.database.clock.now(),
        "seen": getattr(request.state, "seen", ""),
    }
    return HTMLResponse(environment().get_template(template).render({**common, **shown}), status)


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": number,
        "counted": shown_count,
        "short": short,
        "dollars": dollars,
        "span": span,
        "at": at,
        "linked": linked,
        "with_code": with_code,
        "safe_url": safe_url,
        "shade": shade,
        "initial": initial,
        "money": money,
        "lasting": lasting,
        "percent": percent,
    }
    made.globals |= {"static": static, "version": __version__}
    return made


@cache
def static(name: str) -> str:
    """The address of an asset; a new version of it has a new one, so that it may be kept for ever."""
    return f"/static/{name}?v={sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"


def shown_count(value: int | None, one: str, many: str | None = None) -> str:
    return _NONE if value is None else counted(value, one, many)


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


def percent(share: Decimal) -> str:
    return f"{share:+,f} %" if share else "0 %"


def dollars(credits_spent: int | None) -> str:
    return "" if credits_spent is None else shown_dollars(credits_spent)


def span(since: datetime, until: datetime) -> str:
    """How long between two moments, in the largest unit that fits."""
    left = abs((until - since).total_seconds())
    for size, unit in _STEPS:
        if left < size:
            return f"{left:.0f} {unit}"
        left /= size
    return f"{left:.1f} y"


def lasting(duration: timedelta | None) -> str:
    return _NONE if duration is None else span(_ORIGIN, _ORIGIN + duration)


def at(moment: datetime | None, now: datetime | None = None) -> Markup:
    """A moment for machines and people: how long ago where `now` is given, and the whole of it to point at."""
    if moment is None:
        return escape(_NONE)
    whole = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if now is None:
        shown = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
    else:
        shown = f"{span(moment, now)} ago" if moment <= now else f"in {span(now, moment)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(moment.isoformat(), whole, shown)


def with_code(text: str) -> Markup:
    """Text in which commands between backticks stand out; all else is text, whatever it looks like."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without another
        return escape(text)
    shown = [Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return Markup("").join(shown)


def linked(text: str) -> Markup:
    """Text in which addresses can be followed; all else is text, whatever it looks like."""
    parts: list[Markup] = []
    done = 0
    for found in _URL.finditer(text):
        parts += [escape(text[done : found.start()]), _link(found[0])]
        done = found.end()
    return Markup("").join([*parts, escape(text[done:])])


def _link(url: str) -> Markup:
    shown = url.partition("://")[2]
    return Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>').format(url, shown)


def marked(text: str, wanted: re.Pattern[str]) -> Markup:
    """The text with what was looked for in <mark>."""
    parts: list[Markup] = []
    done = 0
    for found in wanted.finditer(text):
        if found[0]:
            parts += [escape(text[done : found.start()]), Markup("<mark>{}</mark>").format(found[0])]
            done = found.end()
    return Markup("").join([*parts, escape(text[done:])])


def safe_url(url: str | None) -> str | None:
    """Only what leads to a page: a profile may say `javascript:` as well."""
    return url if url and url.lower().startswith(_SAFE) else None


def shade(user_id: int) -> int:
    """One of a few colours, the same for one user everywhere."""
    return (user_id >> 3) % _SHADES


def initial(name: str | None) -> str:
    return next((letter.upper() for letter in name or "" if letter.isalnum()), "?")
