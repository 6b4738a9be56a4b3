"""How sources and their keys are shown."""

from datetime import datetime

from mistnet.cli.output import Block, Grid, at, last_line, span
from mistnet.desk.standings import KeyStanding, SourceStanding
from mistnet.domain.plural import counted
from mistnet.store.answers import KeptAnswers


def blocks(source: SourceStanding, now: datetime) -> list[Block]:
    state = source.state + (f" until {at(source.until)} UTC" if source.until else "")
    facts = {
        "state": state + (f" ({source.why})" if source.why else ""),
        "breaker": _breaker(source),
        "failures in a row": str(source.failure_streak),
        "last success": _ago(source.last_success_at, now) or "never",
        "last failure": _failure(source, now) or "never",
        "kept answers": _cache(source.cache),
    }
    if source.costs_credits:
        facts["credits today"] = _of(source.day_credits, source.day_cap)
        facts["credits this month"] = _of(source.month_credits, source.month_cap)
    return [Grid(title=f"source {source.name}", columns=("", ""), rows=list(facts.items())), keys_grid(source, now)]


def keys_grid(source: SourceStanding, now: datetime) -> Grid:
    return Grid(
        title=f"keys of {source.name}",
        columns=("key", "calls a minute", "at once", "balance", "as of", ""),
        rows=[
            (
                key.label,
                f"{key.rate_per_minute:,g} ({key.rate_is})",
                _bucket(key),
                f"{key.balance:,}" if key.balance is not None else "not asked yet" if source.costs_credits else "",
                _ago(key.balance_at, now),
                _key_note(key),
            )
            for key in source.keys
        ],
        empty=f"no key is configured: {_how_to_configure(source.name)}",
    )


def _how_to_configure(name: str) -> str:
    return {
        "x": "set MISTNET_X_API_KEY",
        "threads": "set MISTNET_THREADS_TOKEN",
        "ebay_api": "set MISTNET_EBAY_CLIENT_ID and MISTNET_EBAY_CLIENT_SECRET",
    }.get(name, "another machine asks it")


def _breaker(source: SourceStanding) -> str:
    breaker = source.breaker
    opens = "opens" if breaker.opens_after == 1 else "open"
    rule = f"{counted(breaker.opens_after, 'failure')} in a row {opens} it for {span(breaker.stays_open)}"
    if breaker.state == "open":
        return f"open until {at(breaker.opened_until)} UTC"
    if breaker.state == "half-open":
        return "half-open: a call tries now" if breaker.probe_until else "half-open: the next call tries"
    return f"closed ({rule})"


def _bucket(key: KeyStanding) -> str:
    slowed = f", slowed to {key.slowdown:.0%}" if key.slowdown < 1 else ""
    return f"{key.bucket:,} of {key.burst:,}{slowed}"


def _cache(cache: KeptAnswers | None) -> str:
    return "none are kept" if cache is None else f"{cache.answers:,}, of them {cache.fresh:,} still good"


def _key_note(key: KeyStanding) -> str:
    paused = f"paused: {key.pause_reason or 'no reason given'}" if key.paused_at else ""
    return "; ".join(said for said in (paused, "" if key.configured_here else "not configured here") if said)


def _ago(moment: datetime | None, now: datetime) -> str:
    return f"{at(moment)} UTC, {span(now - moment)} ago" if moment else ""


def _failure(source: SourceStanding, now: datetime) -> str:
    said = last_line(source.last_failure)
    return _ago(source.last_failure_at, now) + (f": {said}" if said else "")


def _of(spent: int, cap: int | None) -> str:
    return f"{spent:,} of {cap:,}" if cap is not None else f"{spent:,} (no cap)"
