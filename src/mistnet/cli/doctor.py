"""The doctor: looks everything over, says what to do, and mends what is safe to mend."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.output import Block, Grid, document
from mistnet.cli.shared import Invocation, shared_options
from mistnet.domain.social import Detail
from mistnet.harvest import WRITERS
from mistnet.store.checkup import Checkup, Expectations
from mistnet.store.findings import Finding
from mistnet.store.quarantine import KeptPayload, Quarantine, Reading, Reparsed
from mistnet.store.schema import require_current
from mistnet.store.writes import Writers
from mistnet.upstream.x.decode import gather_posts, gather_users

POST_ENDPOINTS: Final = ("tweet/advanced_search", "tweets", "user/last_tweets", "tweet/replies")
USER_ENDPOINTS: Final = {
    "user/batch_info_by_ids": Detail.PROFILE,
    "user/followers": Detail.LISTED,
    "user/followings": Detail.LISTED,
}


@shared_options
async def doctor(
    invocation: Invocation,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what is safe to mend. Never deletes a job.")] = False,
    reparse: Annotated[
        bool, typer.Option("--reparse", help="Try payloads again that could not be read; for after an upgrade.")
    ] = False,
) -> int:
    """Look over database, leases, workers and queue. Exit code 1 if something is badly wrong."""
    async with open_app(invocation.settings, checked=False) as app:
        reparsed = await reparse_all(app) if reparse else None
        checkup = Checkup(app.database, expectations(app))
        found = await checkup.run()
        repaired: Sequence[str] = ()
        if fix and any(each.fixable for each in found):
            repaired = await checkup.repair()
            found = await checkup.run()
    healthy = not any(each.level == "fail" for each in found)
    shown = document(healthy=healthy, findings=found, repaired=repaired, reparsed=reparsed)
    invocation.out.show(shown, _grid(found), *_told(reparsed), *_said(found, repaired))
    return 0 if healthy else 1


def expectations(app: App) -> Expectations:
    return Expectations(
        kinds=list(app.kinds),
        live_caps=app.kinds.live_caps,
        heartbeat=app.settings.heartbeat,
        reclaim=timedelta(seconds=app.settings.reclaim_seconds),
    )


async def reparse_all(app: App) -> Reparsed:
    """Reads what was set aside with today's decoder, and writes what can be read now."""
    await require_current(app.database)
    await app.database.correct_clock()
    return await Quarantine(app.database).reparse(reread, Writers(WRITERS), now=app.database.clock.now())


def reread(kept: KeptPayload) -> Reading:
    """One payload by the decoder of the endpoint it came from. All of it can be read, or none is taken."""
    payload = msgspec.Raw(kept.payload)
    try:
        if kept.endpoint in POST_ENDPOINTS:
            gathered, _ = gather_posts([payload], kept.endpoint)
        elif kept.endpoint in USER_ENDPOINTS:
            gathered = gather_users([payload], kept.endpoint, USER_ENDPOINTS[kept.endpoint])
        else:
            return Reading(problem=f"nothing here reads what comes from {kept.endpoint}")
    except RecursionError:
        return Reading(problem="it is nested too deeply")
    if gathered.unreadable:
        return Reading(problem=gathered.unreadable[0].problem)
    return Reading(writes=gathered.writes)


def _told(reparsed: Reparsed | None) -> list[Block]:
    if reparsed is None:
        return []
    counts = ((reparsed.resolved, "read now"), (reparsed.left, "still not readable"))
    rows = [(f"{count:,}", what, problem) for problems, what in counts for problem, count in problems.items()]
    title = "payloads in quarantine"
    return [Grid(title=title, columns=("", "", "problem"), rows=rows, empty="no payload is in quarantine")]


def _grid(found: Sequence[Finding]) -> Grid:
    return Grid(
        columns=("", "what", "found", "what to do"),
        rows=[(each.level, each.name, each.found, each.advice or "") for each in found],
    )


def _said(found: Sequence[Finding], repaired: Sequence[str]) -> list[str]:
    said = [f"mended: {', '.join(repaired)}"] if repaired else []
    worst = [each for each in found if each.level != "ok"]
    if not worst:
        return [*said, "all is well"]
    hint = "; --fix mends some of it" if any(each.fixable for each in worst) else ""
    return [*said, f"{len(worst)} of {len(found)} want attention{hint}"]
