"""The segments commands: define named sets of users or posts, switch them, work them out, look at them."""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli import segment_rules as rules
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.output import Block, Grid, at, document, span
from mistnet.cli.segment_rules import RuleOptions, seconds
from mistnet.graph.segments.materialize import MaterializationJob, job_of
from mistnet.graph.segments.model import AboutSubject, Segment, Snapshot
from mistnet.graph.segments.rules import in_words
from mistnet.graph.segments.service import RequestedMaterialization, shown_rule
from mistnet.kit.errors import DatabaseBusy
from mistnet.kit.text import counted
from mistnet.queue.errors import WorkError
from mistnet.queue.model import JobState
from mistnet.social.store.account_pages import People

FAILED: Final = 3
TIMED_OUT: Final = 124
_LOOK_SECONDS: Final = 0.5
_WITHOUT_WORKER_SECONDS: Final = 60.0
_SEEN_LATELY: Final = timedelta(minutes=2)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The segment's name.")]
Every = Annotated[
    float | None,
    typer.Option("--every", parser=seconds, metavar="SPAN", help="Work it out so often: 15m, 6h, 1d, 2w."),
]
Fresh = Annotated[
    float | None,
    typer.Option(
        "--fresh",
        parser=seconds,
        metavar="SPAN",
        help="Follow lists must have been synced within this span; without it, ever.",
    ),
]


@shared_options
async def define(  # noqa: PLR0913 (each way to say a rule is an option)
    invocation: Invocation,
    name: Name,
    *,
    json_rule: rules.JsonRule = None,
    specified: rules.Specified = False,
    followers_of: rules.FollowersOf = None,
    followed_by: rules.FollowedBy = None,
    mutuals_of: rules.MutualsOf = None,
    unreciprocated_of: rules.UnreciprocatedOf = None,
    query: rules.Words = None,
    authors_in: rules.AuthorsIn = None,
    link: rules.Link = None,
    since: rules.Since = None,
    until: rules.Until = None,
    within: rules.Within = None,
    union: rules.UnionOf = None,
    intersection: rules.IntersectionOf = None,
    difference: rules.DifferenceOf = None,
    every: Every = None,
    fresh: Fresh = None,
) -> int:
    """Make a segment, or give the one of this name another rule. Its history stays.

    A handle that is not stored yet is looked up, which takes a key for X.
    """
    options = RuleOptions(
        json=json_rule,
        specified=specified,
        about={
            "followers": followers_of,
            "followed": followed_by,
            "mutuals": mutuals_of,
            "unreciprocated_followed": unreciprocated_of,
        },
        posts={
            "query": query,
            "authors_in": authors_in,
            "link": link,
            "since": since,
            "until": until,
            "within_seconds": within,
        },
        sets={"union": union, "intersection": intersection, "difference": difference},
    )
    rule = options.rule(name)
    async with open_app(invocation.settings) as app:
        try:
            done = await app.segments.define(name, rule, every_seconds=every, fresh_seconds=fresh)
        except WorkError as error:
            complain(f"{error}; nothing was written", app.secrets)
            return 1
    what = "defined" if done.created else "changed" if done.changed else "as it was"
    said = f"segment {name} is {what}: {in_words(done.segment.rule)}"
    hint = f"next: `mistnet segments materialize {name}` works it out"
    shown = document(created=done.created, changed=done.changed, segment=fields(done.segment))
    invocation.out.show(shown, said, *([] if done.segment.materialized_at or every else [hint]))
    return 0


@shared_options
async def list_segments(invocation: Invocation) -> None:
    """All segments, with how many are in each."""
    async with open_app(invocation.settings) as app:
        found: list[Segment] = []
        while page := await app.segments.store.list(after=found[-1].id if found else 0):
            found += page
        latest = await app.segments.store.latest([each.id for each in found])
        rows = [_line(each, await _subject(app, each), latest.get(each.id)) for each in found]
    grid = Grid(
        columns=("name", "members", "what", "rule", "worked out (UTC)", ""),
        rows=rows,
        empty="no segments yet: `mistnet segments define NAME --followers-of @somebody` makes one",
    )
    invocation.out.show(document(segments=[fields(each, latest.get(each.id)) for each in found]), grid)


@shared_options
async def show(invocation: Invocation, name: Name) -> None:
    """One segment: its rule, its rhythm, how it stands, and the last times it was worked out."""
    async with open_app(invocation.settings) as app:
        segment = await app.segments.store.get(name)
        snapshots = await app.segments.store.snapshots(name, limit=10)
        builders = await app.segments.store.users_of(name)
        job = await job_of(app.database, segment.id)
        subject = await _subject(app, segment)
        known = await app.segments.store.known_since(name)
    shown = document(
        segment=fields(segment, snapshots[0] if snapshots else None),
        known_since=known,
        used_by=builders,
        job=_job(job),
        snapshots=[snapshot_fields(each) for each in snapshots],
    )
    invocation.out.show(shown, *_told(segment, in_words(segment.rule, subject), snapshots, builders, job, known))


async def _subject(app: App, segment: Segment) -> str | None:
    """What to call the user a segment is about, if he is stored."""
    if not isinstance(segment.rule, AboutSubject):
        return None
    known = await People(app.database).by_id(segment.rule.subject_id)
    return f"@{known.handle}" if known and known.handle else None


@shared_options
async def enable(invocation: Invocation, name: Name) -> None:
    """Let a segment be worked out again."""
    async with open_app(invocation.settings) as app:
        segment = await app.segments.store.enable(name, now=app.database.clock.now())
    invocation.out.show(document(segment=fields(segment)), f"segment {name} is enabled")


@shared_options
async def disable(invocation: Invocation, name: Name) -> None:
    """Keep a segment as it is: it is not worked out any more, and others that build on it use what it has."""
    async with open_app(invocation.settings) as app:
        segment = await app.segments.store.disable(name, now=app.database.clock.now())
    invocation.out.show(document(segment=fields(segment)), f"segment {name} is disabled; it keeps the members it has")


@shared_options
async def materialize(
    invocation: Invocation,
    name: Name,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is done, and show what came of it.")] = False,
    within: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=seconds,
            metavar="SPAN",
            help="Wait no longer than this: 90s, 15m. Default: until it is done, or a minute without any worker.",
        ),
    ] = None,
) -> int:
    """Work out who is in a segment now. Workers do it, and sync what it needs first.

    With --wait the exit code is 3 if it failed and 124 if the time was up first; the job stays. Ctrl-C leaves it going.
    """
    if within is not None and not wait:
        raise typer.BadParameter("--timeout goes with --wait")
    async with open_app(invocation.settings) as app:
        asked = await app.segments.materialize(name, asked_by="command line", job_writer=app.job_writer)
        if not wait:
            shown = document(segment=fields(asked.segment), created=asked.created)
            invocation.out.show(shown, f"segment {name} {await _how_it_stands(app, asked)}", *await _hints(app))
            return 0
        return await _wait(invocation, app, asked, within=within)


async def _how_it_stands(app: App, asked: RequestedMaterialization) -> str:
    if asked.created:
        return "will be worked out"
    job = await job_of(app.database, asked.segment.id)
    running = job is not None and job.state is JobState.RUNNING
    return "is being worked out" if running else "waits to be worked out already"


async def _wait(
    invocation: Invocation, app: App, asked: RequestedMaterialization, *, within: float | None = None
) -> int:
    """Until there is a newer snapshot, no job works for one any more, or the time is up."""
    name = asked.segment.name
    patience = WaitLimit(within)
    while True:
        job = await job_of(app.database, asked.segment.id)
        last = next(iter(await app.segments.store.snapshots(name, limit=1)), None)
        if last is not None and last.at != asked.segment.materialized_at:
            shown = document(segment=name, snapshot=snapshot_fields(last))
            first = asked.segment.materialized_at is None
            turned = "this was the first time" if first else f"{last.entered:,} came, {last.departed:,} went"
            counts = f"{counted(last.members, 'member')}; {turned}"
            invocation.out.show(shown, f"segment {name} is worked out: {counts}")
            return 0
        if job is None or not job.alive:
            complain(f"segment {name} could not be worked out: {_why(job)}", app.secrets)
            return FAILED
        if patience.ended(await _hints(app)):
            why = f": {job.wait_reason}" if job.wait_reason else ""
            complain(
                f"segment {name} is not worked out yet: its job waits{why}. It stays for the next worker", app.secrets
            )
            return TIMED_OUT
        with suppress(DatabaseBusy):
            await asyncio.sleep(_LOOK_SECONDS)


class WaitLimit:
    """How long to wait: as long as was asked for, else until no worker was there for a while."""

    def __init__(self, within: float | None) -> None:
        self._within = within
        self._begun = time.monotonic()
        self._alone_since: float | None = None

    def ended(self, hints: Sequence[str]) -> bool:
        """`hints` say that no worker is there, which is told once."""
        now = time.monotonic()
        if not hints:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
            sys.stderr.write(f"{hints[0]}\n")
        if self._within is not None:
            return now - self._begun >= self._within
        return self._alone_since is not None and now - self._alone_since >= _WITHOUT_WORKER_SECONDS


def _why(job: MaterializationJob | None) -> str:
    return (job.last_error or "its job failed without saying why") if job else "its job was cancelled"


async def _hints(app: App) -> list[str]:
    now = app.database.clock.now()
    if any(now - each.seen_at <= _SEEN_LATELY for each in await app.inspector.workers()):
        return []
    return ["no worker was seen lately: `mistnet work` starts one"]


def fields(segment: Segment, latest: Snapshot | None = None) -> Mapping[str, Any]:
    """A segment as programs see it."""
    told = {name: getattr(segment, name) for name in segment.__struct_fields__}
    count = {"members": latest.members} if latest else {}
    return {**told, "rule": shown_rule(segment.rule), "in_words": in_words(segment.rule), **count}


def snapshot_fields(snapshot: Snapshot) -> Mapping[str, Any]:
    told = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__ if name != "segment_id"}
    return {**told, "ingests": [str(each) for each in snapshot.ingests]}


def _job(job: MaterializationJob | None) -> Mapping[str, Any] | None:
    return {name: getattr(job, name) for name in job.__struct_fields__} if job else None


def _line(segment: Segment, subject: str | None, latest: Snapshot | None) -> Sequence[str]:
    members = f"{latest.members:,}" if latest else ""
    state = "" if segment.enabled else "disabled"
    return segment.name, members, segment.what, in_words(segment.rule, subject), at(segment.materialized_at), state


def _told(
    segment: Segment,
    rule: str,
    snapshots: Sequence[Snapshot],
    builders: Sequence[str],
    job: MaterializationJob | None,
    known: datetime | None,
) -> list[Block]:
    lines = [f"{segment.name}: {rule}" + ("" if segment.enabled else " (disabled)")]
    if segment.every_seconds:
        lines.append(f"worked out every {span(timedelta(seconds=segment.every_seconds))}, next {at(segment.next_at)}")
    if segment.fresh_seconds:
        lines.append(f"needs syncs of the last {span(timedelta(seconds=segment.fresh_seconds))}")
    if known:
        lines.append(f"known since {at(known)} UTC: who was in it then has not come")
    if builders:
        lines.append(f"what builds on it: {', '.join(builders)}")
    if job:
        why = job.wait_reason if job.alive else job.last_error
        lines.append(f"job {job.id} is {job.state}" + (f": {why}" if why else ""))
    grid = Grid(
        columns=("worked out (UTC)", "members", "came", "went"),
        rows=[(at(each.at), f"{each.members:,}", f"{each.entered:,}", f"{each.departed:,}") for each in snapshots],
        empty=f"never worked out: `mistnet segments materialize {segment.name}`",
    )
    return ["\n".join(lines), grid]
