"""How sources and their keys are shown."""

from datetime import datetime

from mistnet.cli.output import Block, Grid, at, last_line, span
from mistnet.desk.standings import KeyStanding, SourceStanding


def blocks(source: SourceStanding, now: datetime) -> list[Block]:
    state = source.state + (f" until {at(source.until)} UTC" if source.until else "")
    facts = {
        "state": state + (f" ({source.why})" if source.why else ""),
        "failures in a row": str(source.failure_streak),
        "last success": _ago(source.last_success_at, now) or "never",
        "last failure": _failure(source, now) or "never",
        "credits today": _of(source.day_credits, source.day_cap),
        "credits this month": _of(source.month_credits, source.month_cap),
    }
    return [Grid(title=f"source {source.name}", columns=("", ""), rows=list(facts.items())), keys_grid(source, now)]


def keys_grid(source: SourceStanding, now: datetime) -> Grid:
    return Grid(
        title=f"keys of {source.name}",
        columns=("key", "calls a minute", "balance", "as of", ""),
        rows=[
            (
                key.label,
                f"{key.rate_per_minute:,g} ({key.rate_is})",
                f"{key.balance:,}" if key.balance is not None else "not asked yet",
                _ago(key.balance_at, now),
                _key_note(key),
            )
            for key in source.keys
        ],
        empty="no key is configured: set MISTNET_X_API_KEY",
    )


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
