"""The segments commands: define named sets of users or posts, enable and disable, materialize and show them."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import argument, flag, moment, option, seconds, storable
from mistnet.cli.output import Grid, Output, at, complain, document, fields_of, span, worker_hints
from mistnet.graph.segments.materialize import job_of
from mistnet.graph.segments.model import AboutSubject, AnyRule, Segment, Snapshot
from mistnet.graph.segments.rules import in_words, read_rule
from mistnet.graph.segments.service import RequestedMaterialization, segment_fields
from mistnet.kit.text import counted, split_list
from mistnet.queue.errors import WorkError
from mistnet.queue.model import JobState
from mistnet.social.model import read_handle
from mistnet.social.store.account_pages import People

FAILED: Final = 3
TIMED_OUT: Final = 124
_POLL_SECONDS: Final = 0.5
_WITHOUT_WORKER_SECONDS: Final = 60.0
_SIMPLE: Final = "A simple rule"
_POSTS: Final = "Posts"
_SETS: Final = "Sets of other segments"


def _who(name: str, text: str) -> Any:
    return option(name, "WHO", f"{text} @name, or a user's id.", rich_help_panel=_SIMPLE)


def _of_posts(name: str, metavar: str, text: str, parser: Callable[[str], object] | None = None) -> Any:
    return option(name, metavar, text, parser=parser, rich_help_panel=_POSTS)


def _names(name: str, text: str) -> Any:
    return option(name, "A,B,...", text, rich_help_panel=_SETS)


class RuleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the members of a segment are found: one kind of rule."""

    json_rule: Annotated[str | None, option("--rule", "JSON", "Any rule, as JSON.")] = None
    specified: Annotated[
        bool, flag("--specified", "Users named one by one: `segments inputs`.", rich_help_panel=_SIMPLE)
    ] = False
    followers_of: Annotated[str | None, _who("--followers-of", "Who follows")] = None
    followed_by: Annotated[str | None, _who("--followed-by", "Whom they follow:")] = None
    mutuals_of: Annotated[str | None, _who("--mutuals-of", "Who follows and is followed back by")] = None
    unreciprocated_of: Annotated[
        str | None, _who("--unreciprocated-of", "Whom they follow without being followed back:")
    ] = None
    query: Annotated[str | None, _of_posts("--query", "QUERY", "Posts with these words.")] = None
    authors_in: Annotated[str | None, _of_posts("--authors-in", "NAME", "Posts by its members.")] = None
    link: Annotated[str | None, _of_posts("--link", "HOST", "Posts with a link to a host or platform.")] = None
    since: Annotated[datetime | None, _of_posts("--since", "TIME", "Posts from then on.", moment)] = None
    until: Annotated[datetime | None, _of_posts("--until", "TIME", "Posts before then.", moment)] = None
    within: Annotated[float | None, _of_posts("--within", "SPAN", "Posts of the last 6h, 7d.", seconds)] = None
    union: Annotated[list[str] | None, _names("--union", "All of them together.")] = None
    intersection: Annotated[list[str] | None, _names("--intersection", "What is in each of them.")] = None
    difference: Annotated[list[str] | None, _names("--difference", "The first without the others.")] = None

    def rule(self, name: str) -> AnyRule:
        """The rule of the segment with this name. Exactly one kind of rule must be given."""
        storable("--rule", self.json_rule)
        storable("--query", self.query)
        ways: list[str | Mapping[str, Any]] = [] if self.json_rule is None else [self.json_rule]
        ways += [{"kind": "specified_users"}] if self.specified else []
        about = {"followers": self.followers_of, "followed": self.followed_by, "mutuals": self.mutuals_of}
        about["unreciprocated_followed"] = self.unreciprocated_of
        ways += [{"kind": kind, "subject": subject(who)} for kind, who in about.items() if who is not None]
        posts = {name: getattr(self, name) for name in ("query", "authors_in", "link", "since", "until")}
        wanted = {name: value for name, value in {**posts, "within_seconds": self.within}.items() if value is not None}
        ways += [{"kind": "posts", **wanted}] if wanted else []
        sets = {name: getattr(self, name) for name in ("union", "intersection", "difference")}
        ways += [{"kind": kind, "of": split_list(*names)} for kind, names in sets.items() if names]
        if len(ways) != 1:
            problem = "give one kind of rule only" if ways else "say how the members are found"
            raise typer.BadParameter(
                f"{problem}: --specified, --followers-of, --followed-by, --mutuals-of, --unreciprocated-of, --query "
                f"and the like for posts, --union, --intersection, --difference, or --rule JSON"
            )
        return read_rule(name, ways[0])


def subject(who: str) -> str:
    """An id stays as it is, anything else is a handle."""
    given = who.strip()
    return given if given.isascii() and given.isdecimal() else f"@{read_handle(given)}"


Name = Annotated[str, argument("NAME", "The segment's name.")]
Every = Annotated[
    float | None, option("--every", "SPAN", "Materialize it at this interval: 15m, 6h, 1d, 2w.", parser=seconds)
]
Fresh = Annotated[
    float | None,
    option("--fresh", "SPAN", "Follow lists must have been synced within this time; default: ever.", parser=seconds),
]


@shared_options
async def define(
    invocation: Invocation, name: Name, *, given: RuleOptions, every: Every = None, fresh: Fresh = None
) -> int:
    """Create a segment, or change the rule of the existing one. Its history stays.

    An unknown handle is looked up, which needs a key for X.
    """
    rule = given.rule(name)
    async with open_app(invocation.settings) as app:
        try:
            done = await app.segments.define(name, rule, every_seconds=every, fresh_seconds=fresh)
        except WorkError as error:
            complain(f"{error}; nothing was written", app.secrets)
            return 1
    what = "defined" if done.created else "changed" if done.changed else "unchanged"
    line = f"segment {name} is {what}: {in_words(done.segment.rule)}"
    hint = f"next: `mistnet segments materialize {name}` materializes it"
    shown = document(created=done.created, changed=done.changed, segment=fields(done.segment))
    invocation.out.show(shown, line, *([] if done.segment.materialized_at or every else [hint]))
    return 0


@app_command
async def list_segments(app: App, out: Output) -> None:
    """Show all segments, with how many members they have."""
    page = await app.segments.store.list()
    found = [*page.items]
    while page.next is not None:
        page = await app.segments.store.list(after=page.next)
        found += page.items
    latest = await app.segments.store.latest([each.id for each in found])
    subjects = {each.id: await _subject(app, each) for each in found}
    grid = Grid.of(
        found,
        "name, members, what, rule, materialized (UTC), ",
        members=lambda each: f"{latest[each.id].members:,}" if each.id in latest else None,
        rule=lambda each: in_words(each.rule, subjects[each.id]),
        untitled=lambda each: None if each.enabled else "disabled",
        empty="no segments yet: `mistnet segments define NAME --followers-of @nasa` creates one",
    )
    out.show(document(segments=[fields(each, latest.get(each.id)) for each in found]), grid)


@app_command
async def show(app: App, out: Output, name: Name) -> None:
    """Show one segment: its rule, schedule, job, and last materializations."""
    segment = await app.segments.store.get(name)
    snapshots = (await app.segments.store.snapshots(name, limit=10)).items
    builders = await app.segments.store.used_by(name)
    job = await job_of(app.database, segment.id)
    subject = await _subject(app, segment)
    known = await app.segments.store.known_since(name)
    shown = document(
        segment=fields(segment, snapshots[0] if snapshots else None),
        known_since=known,
        used_by=builders,
        job=job,
        snapshots=[fields_of(each, "segment_id") for each in snapshots],
    )
    lines = [f"{name}: {in_words(segment.rule, subject)}" + ("" if segment.enabled else " (disabled)")]
    if segment.every_seconds:
        lines.append(f"materialized every {span(timedelta(seconds=segment.every_seconds))}, next {at(segment.next_at)}")
    if segment.fresh_seconds:
        lines.append(f"needs syncs of the last {span(timedelta(seconds=segment.fresh_seconds))}")
    if known:
        lines.append(f"known since {at(known)} UTC: its members at that time are not reported as changes")
    if builders:
        lines.append(f"used by: {', '.join(builders)}")
    if job:
        why = job.wait_reason if job.alive else job.last_error
        lines.append(f"job {job.id} is {job.state}" + (f": {why}" if why else ""))
    grid = Grid(
        columns=("materialized (UTC)", "members", "entered", "left"),
        rows=[(each.at, f"{each.members:,}", f"{each.entered:,}", f"{each.departed:,}") for each in snapshots],
        empty=f"never materialized: run `mistnet segments materialize {segment.name}`",
    )
    out.show(shown, "\n".join(lines), grid)


async def _subject(app: App, segment: Segment) -> str | None:
    """The handle of the user that a segment is about, if known."""
    if not isinstance(segment.rule, AboutSubject):
        return None
    known = await People(app.database).by_id(segment.rule.subject_id)
    return f"@{known.handle}" if known and known.handle else None


@app_command
async def enable(app: App, out: Output, name: Name) -> None:
    """Allow materializations of a segment again."""
    segment = await app.segments.store.enable(name, now=app.database.clock.now())
    out.show(document(segment=fields(segment)), f"segment {name} is enabled")


@app_command
async def disable(app: App, out: Output, name: Name) -> None:
    """Stop materializing a segment. It keeps its members; segments that build on it continue with those."""
    segment = await app.segments.store.disable(name, now=app.database.clock.now())
    out.show(document(segment=fields(segment)), f"segment {name} is disabled; it keeps its members")


@shared_options
async def materialize(
    invocation: Invocation,
    name: Name,
    *,
    wait: Annotated[bool, flag("--wait", "Wait until it is done, and show the result.")] = False,
    within: Annotated[
        float | None,
        option(
            "--timeout",
            "SPAN",
            "Wait no longer than this: 90s, 15m. Default: until it is done, or a minute without any worker.",
            parser=seconds,
        ),
    ] = None,
) -> int:
    """Update the members of a segment. Workers do it, after the syncs that it needs.

    With --wait the exit code is 3 if it failed and 124 if the time was up first. The job continues then, and after
    Ctrl-C.
    """
    if within is not None and not wait:
        raise typer.BadParameter("--timeout goes with --wait")
    async with open_app(invocation.settings) as app:
        asked = await app.segments.materialize(name, asked_by="command line", job_writer=app.job_writer)
        if not wait:
            state = "will be materialized"
            if not asked.created:
                job = await job_of(app.database, asked.segment.id)
                running = job is not None and job.state is JobState.RUNNING
                state = "is being materialized" if running else "is already waiting to be materialized"
            shown = document(segment=fields(asked.segment), created=asked.created)
            invocation.out.show(shown, f"segment {name} {state}", *await worker_hints(app))
            return 0
        return await wait_until_materialized(invocation, app, asked, within=within)


async def wait_until_materialized(
    invocation: Invocation, app: App, asked: RequestedMaterialization, *, within: float | None = None
) -> int:
    """Until there is a newer snapshot, no live job is left, or the time is up."""
    name = asked.segment.name
    patience = WaitLimit(within)
    while True:
        job = await job_of(app.database, asked.segment.id)
        last = next(iter((await app.segments.store.snapshots(name, limit=1)).items), None)
        if last is not None and last.at != asked.segment.materialized_at:
            shown = document(segment=name, snapshot=fields_of(last, "segment_id"))
            first = asked.segment.materialized_at is None
            turned = "this was the first time" if first else f"{last.entered:,} entered, {last.departed:,} left"
            counts = f"{counted(last.members, 'member')}; {turned}"
            invocation.out.show(shown, f"segment {name} is materialized: {counts}")
            return 0
        if job is None or not job.alive:
            why = (job.last_error or "its job failed without saying why") if job else "its job was cancelled"
            complain(f"segment {name} could not be materialized: {why}", app.secrets)
            return FAILED
        if patience.ended(await worker_hints(app)):
            why = f": {job.wait_reason}" if job.wait_reason else ""
            complain(
                f"segment {name} is not materialized yet: its job waits{why}. A worker will continue it", app.secrets
            )
            return TIMED_OUT
        await asyncio.sleep(_POLL_SECONDS)


class WaitLimit:
    """How long to wait: the given time, or else until there was no worker for a minute."""

    def __init__(self, within: float | None) -> None:
        self._within = within
        self._begun = time.monotonic()
        self._alone_since: float | None = None

    def ended(self, hints: Sequence[str]) -> bool:
        """`hints` say that there is no worker, which is shown once."""
        now = time.monotonic()
        if not hints:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
            sys.stderr.write(f"{hints[0]}\n")
        if self._within is not None:
            return now - self._begun >= self._within
        return self._alone_since is not None and now - self._alone_since >= _WITHOUT_WORKER_SECONDS


def fields(segment: Segment, latest: Snapshot | None = None) -> Mapping[str, Any]:
    return {**segment_fields(segment), **({"members": latest.members} if latest else {})}
