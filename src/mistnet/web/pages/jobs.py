"""Jobs: one list of them with filters, changes of many at once, one job with its timeline. And runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Depends, Form, Query
from fastapi.responses import Response

from mistnet.kit.text import counted, read_id
from mistnet.operations.overview import CallLedger
from mistnet.operations.runs.model import DEFAULT_LIMIT, LARGEST_LIMIT, BadRun, RunInProgress, read_handles
from mistnet.queue.errors import JobNotFound
from mistnet.queue.model import GAP_STATES, LIVE_STATES, JobId, JobState
from mistnet.queue.store.inspect import FINISHED_STATES, JobFilter, JobView
from mistnet.queue.store.operations import GapFilter
from mistnet.social.errors import BadHandle, BadHandles
from mistnet.social.model import UserId, read_handle
from mistnet.social.store.account_pages import People
from mistnet.web.fields import LARGEST_ID, BeforeId, NumberPath, QueryText, ShortText, Word, without_nul
from mistnet.web.pages.dashboard import SHOWN_STATES
from mistnet.web.pages.overview import reason_words, remedy
from mistnet.web.pages.render import Confirmed, OperatorPage, PageRequest, ReaderPage, dollars, redirect_to

router = APIRouter(include_in_schema=False)
_PAGE: Final = 20
_GAPS: Final = "gaps"
_CALLS: Final = 20
_RETRIED: Final = (*GAP_STATES, JobState.RETRYABLE)
Field = Annotated[str, Form(max_length=500), without_nul]
_PLACES: Final[Mapping[str, str]] = {
    "post_id": "/conversations/{}",
    "link_id": "/links/{}",
    "item_id": "/items/{}",
    "segment_id": "/segments/{}",
    "run_id": "/runs/{}",
    "feed_id": "/feeds",
}
"""Where the things are that args name."""


class WantedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of the list, as it was typed."""

    state: str = ""
    kind: str = ""
    lane: str = ""
    error: str = ""
    account: str = ""

    @property
    def states(self) -> Sequence[JobState]:
        if self.state == _GAPS:
            return list(GAP_STATES)
        return [each for each in JobState if each == self.state]

    @property
    def query(self) -> str:
        return urlencode({name: value for name, value in msgspec.structs.asdict(self).items() if value})

    @property
    def words(self) -> str:
        named = {name: value for name, value in msgspec.structs.asdict(self).items() if value and name != "state"}
        return ", ".join(f"{name} {value}" for name, value in named.items())

    def gaps(self, about: int | None) -> GapFilter | None:
        """Those of them that failed. None: the filter leaves none of them."""
        states = [each for each in GAP_STATES if each in (self.states or GAP_STATES)]
        if not states:
            return None
        lanes = [self.lane] if self.lane else None
        return GapFilter(kind=self.kind or None, lanes=lanes, error=self.error or None, about=about, states=states)


async def _account_id(page: PageRequest, typed: str) -> int | None:
    """The user with this id or handle; 0, which no job names, if there is none."""
    if not typed:
        return None
    if number := read_id(typed):
        return number
    with suppress(BadHandle):
        found = await People(page.app.database).called(read_handle(typed))
        return found.id if found else 0
    return 0


async def job_filter(page: PageRequest, wanted: WantedJobs, *, before: int | None, limit: int) -> JobFilter:
    return JobFilter(
        kind=wanted.kind or None,
        lane=wanted.lane or None,
        states=wanted.states,
        error=wanted.error or None,
        about=await _account_id(page, wanted.account),
        before_id=before,
        limit=limit,
    )


@router.get("/jobs")
async def jobs(
    page: ReaderPage,
    *,
    state: Word = "",
    kind: ShortText = "",
    lane: ShortText = "",
    error: QueryText = "",
    account: ShortText = "",
    before: BeforeId = None,
) -> Response:
    wanted = WantedJobs(state=state, kind=kind, lane=lane, error=error.strip(), account=account.strip())
    asked = await job_filter(page, wanted, before=before, limit=_PAGE)
    listed = await page.app.inspector.page(asked)
    queue, gaps = await page.dashboard.queue.get(), wanted.gaps(asked.about)
    return page.render(
        "jobs.html",
        jobs=listed.items,
        retried=_RETRIED,
        can_tick=any(each.state in _RETRIED for each in listed.items),
        subjects=await subjects_of(page, listed.items),
        reasons=await reason_words(page.app, [each.wait_reason for each in listed.items]),
        failed_at=await page.app.inspector.failed_at([each.id for each in listed.items if each.state in GAP_STATES]),
        wanted=wanted,
        is_narrowed=bool(wanted.query),
        is_unknown=asked.about == 0,
        kinds=sorted({*page.app.kinds, *queue.kinds}),
        lanes=sorted(page.app.kinds.lanes),
        states=[*SHOWN_STATES, *FINISHED_STATES],
        before=before,
        gaps=await page.app.inspector.gaps(gaps) if gaps and queue.gap_count else 0,
        more=listed.next,
    )


class JobSubject(msgspec.Struct, frozen=True):
    """What a job is about, and the page that shows it."""

    text: str
    href: str | None = None


async def subjects_of(page: PageRequest, jobs: Collection[JobView]) -> Mapping[JobId, JobSubject]:
    """Handles instead of ids, by what the args of each job name."""
    args = {}
    for job in jobs:
        with suppress(msgspec.DecodeError):
            args[job.id] = msgspec.json.decode(job.args, type=dict[str, Any])
    ids = {UserId(own[name]) for own in args.values() for name in ("user_id", "account_id") if own.get(name)}
    names = await People(page.app.database).names(ids)
    subjects = {}
    for job in jobs:
        own, text = args.get(job.id, {}), job.key or f"job {job.id}"
        href: str | None = None
        user = names.get(own.get("user_id") or own.get("account_id") or UserId(0))
        handle = f"@{user.handle}" if user and user.handle else None
        if conversation := own.get("conversation_id"):
            text, href = f"a conversation of {handle}" if handle else text, f"/conversations/{conversation}"
        elif own.get("user_id"):
            text, href = handle or text, f"/accounts/{user.id}" if user and user.tracked else None
        else:
            text = f"@{own['handle']}" if own.get("handle") else text
            href = next((place.format(own[name]) for name, place in _PLACES.items() if own.get(name)), None)
        subjects[job.id] = JobSubject(text, href)
    return subjects


class JobMoment(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a job's timeline."""

    at: datetime
    title: str
    text: str = ""
    error: str | None = None
    state: str = ""


@router.get("/jobs/{job_id}")
async def job(page: ReaderPage, job_id: NumberPath) -> Response:
    found = await page.app.inspector.job(JobId(job_id))
    if found is None:
        raise JobNotFound(job_id)
    reasons = await reason_words(page.app, [found.wait_reason])
    found = msgspec.structs.replace(found, wait_reason=reasons.get(found.wait_reason or ""))
    args = bytes(found.args)
    with suppress(msgspec.DecodeError):
        args = msgspec.json.format(args, indent=2)
    return page.render(
        "job.html",
        job=found,
        subject=(await subjects_of(page, [found]))[found.id],
        args=args.decode("utf-8", "replace"),
        is_gap=found.state in GAP_STATES,
        is_live=found.state in LIVE_STATES,
        remedy=remedy(found.state, found.last_error) if found.state in GAP_STATES else None,
        timeline=sorted(await _timeline(page, found), key=lambda each: each.at),
    )


async def _timeline(page: PageRequest, job: JobView) -> Sequence[JobMoment]:
    moments = [JobMoment(at=job.created_at, title="Added")]
    for each in job.errors:
        title, text = f"Claim {each.fence} failed", f"on {each.worker}"
        moments.append(JobMoment(at=each.at, title=title, text=text, error=each.error))
    moments.append(_describe_state(job, page.now))
    if job.started_at:
        until = job.finished_at or max((each.at for each in job.errors if job.state in GAP_STATES), default=page.now)
        ending = "th" if 10 <= job.fence % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(job.fence % 10, "th")
        moments.append(JobMoment(at=job.started_at, title=f"Claimed for the {job.fence:,}{ending} time"))
        for call in await CallLedger(page.app.database).of_job(
            job.id, since=job.started_at, until=max(until, job.started_at), limit=_CALLS
        ):
            result = f"answered {call.status}" if call.status else "had no answer"
            text = f"{counted(call.items, 'item')} for {dollars(call.credits)} in {call.seconds:.1f} s"
            moments.append(JobMoment(at=call.at, title=f"{call.endpoint} {result}", text=text, error=call.error))
    return moments


def _describe_state(job: JobView, now: datetime) -> JobMoment:
    """What became of it, or what it waits for."""
    match job.state:
        case JobState.SUCCEEDED | JobState.CANCELLED:
            return JobMoment(at=job.finished_at or job.run_at, title=job.state.capitalize(), state=job.state)
        case JobState.FAILED | JobState.DEAD:
            why = "It can never succeed as it is." if job.state is JobState.FAILED else "All attempts are used up."
            error = None if job.errors else job.last_error
            # When it would have been due again says nothing any more.
            failed_at = max((each.at for each in job.errors), default=job.started_at or job.created_at)
            return JobMoment(at=failed_at, title=job.state.capitalize(), text=why, error=error, state=job.state)
        case JobState.RUNNING:
            until = f", leased until {job.lease_until:%H:%M:%S} UTC" if job.lease_until else ""
            return JobMoment(at=now, title="Runs", text=f"on {job.worker}{until}", state=job.state)
        case _ if job.parked:
            return JobMoment(at=now, title="Waits", text="held back by the cap on live jobs", state="parked")
        case _ if job.run_at > now:
            why = job.wait_reason or "set for a later time"
            return JobMoment(at=job.run_at, title="Will run", text=why, state=job.state)
        case _:
            return JobMoment(at=now, title="Due", text="waits for a free worker", state=job.state)


@router.post("/jobs/{job_id:id}/retry")
async def retry(page: OperatorPage, job_id: NumberPath) -> Response:
    (change,) = await page.app.operations.retry([JobId(job_id)], now=page.now)
    if change.changed:
        await _forget_dead_letters(page)
    return redirect_to(f"/jobs/{job_id}", "retried" if change.changed else "not-retried")


@router.post("/jobs/{job_id:id}/cancel")
async def cancel(page: OperatorPage, job_id: NumberPath) -> Response:
    (change,) = await page.app.operations.cancel([JobId(job_id)], now=page.now)
    return redirect_to(f"/jobs/{job_id}", "cancelled" if change.changed else "not-cancelled")


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to change: the ticked ones, or all failed ones that a filter finds."""

    wanted: WantedJobs
    gaps: GapFilter | None
    ids: Sequence[JobId] | None

    @property
    def back(self) -> str:
        return f"/jobs?{self.wanted.query}"


async def read_bulk(
    page: OperatorPage,
    *,
    which: Field = "all",
    ids: Annotated[list[int] | None, Form(alias="id", max_length=_PAGE)] = None,
    state: Field = "",
    kind: Field = "",
    lane: Field = "",
    error: Field = "",
    account: Field = "",
) -> Bulk:
    wanted = WantedJobs(state=state, kind=kind, lane=lane, error=error.strip(), account=account.strip())
    if which != "all":
        ticked = [JobId(each) for each in ids or () if 0 < each <= LARGEST_ID]
        return Bulk(wanted=wanted, ids=ticked, gaps=GapFilter(ids=ticked) if ticked else None)
    return Bulk(wanted=wanted, ids=None, gaps=wanted.gaps(await _account_id(page, wanted.account)))


BulkForm = Annotated[Bulk, Depends(read_bulk)]


@router.post("/jobs/requeue")
async def requeue(page: OperatorPage, bulk: BulkForm, confirmed: Confirmed = "") -> Response:
    """Retry the ticked jobs, or all failed ones that the filter finds."""
    number = 0 if bulk.gaps is None else len(bulk.ids or ()) or await page.app.inspector.gaps(bulk.gaps)
    if bulk.gaps is None or not number:
        return redirect_to(bulk.back, "not-requeued")
    if not confirmed:
        text = f"They become due with all their attempts{_which(bulk)}."
        question = f"Retry {counted(number, 'job' if bulk.ids else 'failed job')}?"
        return await page.ask(question, text, button=f"Retry {number:,}", back=bulk.back)
    if bulk.ids:
        changes = await page.app.operations.retry(bulk.ids, now=page.now)
        done = any(change.changed for change in changes)
    else:
        done = bool((await page.app.operations.requeue(bulk.gaps, now=page.now)).requeued)
    await _forget_dead_letters(page)
    return redirect_to(bulk.back, "requeued" if done else "not-requeued")


@router.post("/jobs/accept")
async def accept(page: OperatorPage, bulk: BulkForm, confirmed: Confirmed = "") -> Response:
    """Accept the ticked failed jobs as they are, or all that the filter finds: they end, and are not retried."""
    number = 0 if bulk.gaps is None else await page.app.inspector.gaps(bulk.gaps)
    if bulk.gaps is None or not number:
        return redirect_to(bulk.back, "not-accepted")
    if not confirmed:
        text = f"They end as they are and are never retried: what they were to fetch stays missing{_which(bulk)}."
        question = f"Accept {counted(number, 'failed job')}?"
        return await page.ask(question, text, button=f"Accept {number:,}", back=bulk.back)
    await page.app.operations.accept(bulk.gaps, now=page.now)
    return redirect_to(bulk.back, "accepted")


def _which(bulk: Bulk) -> str:
    return f". All that match: {bulk.wanted.words}" if bulk.ids is None and bulk.wanted.words else ""


async def _forget_dead_letters(page: PageRequest) -> None:
    """Dead letters of jobs that are live again would otherwise stay in RabbitMQ."""
    for lane in page.app.dispatching.lanes:
        await page.app.dispatching.remove_stale_dead_letters(lane, page.app.operations)


_RUNS: Final = 30


@router.get("/runs")
async def list_runs(page: ReaderPage, before: Annotated[str | None, Query(max_length=40)] = None) -> Response:
    return await _list_runs(page, before)


async def _list_runs(page: PageRequest, before: str | None = None, **form: Any) -> Response:
    runs = await page.app.runs.page(page.now, before=before, limit=_RUNS)
    empty = {"problem": None, "given": "", "limit": str(DEFAULT_LIMIT), "most": LARGEST_LIMIT}
    return page.render("runs.html", runs=runs.items, more=runs.next, before=before, **{**empty, **form})


@router.post("/runs")
async def start_run(
    page: OperatorPage,
    usernames: Annotated[str, Form(max_length=20_000)] = "",
    limit: Annotated[str, Form(max_length=10)] = str(DEFAULT_LIMIT),
) -> Response:
    """Start a run. If that is refused, show the form again with the reason."""
    try:
        # People paste handles in lines, or with spaces between.
        handles = read_handles(usernames.replace("\n", ",").replace(" ", ","))
        run = await page.app.runs.start(handles, _read_limit(limit), asked_by=page.caller.name, now=page.now)
    except (BadHandles, BadRun, RunInProgress) as error:
        status = 409 if isinstance(error, RunInProgress) else 400
        return await _list_runs(page, problem=str(error), given=usernames, limit=limit, status=status)
    return redirect_to(f"/runs/{run.id}", "started")


def _read_limit(written: str) -> int:
    if not written.isascii() or not written.strip().isdecimal():
        raise BadRun("limit", f"must be a number of posts, such as {DEFAULT_LIMIT}")
    return int(written)


@router.post("/runs/{run_id}/cancel")
async def cancel_run(page: OperatorPage, run_id: str) -> Response:
    """End a run. What it has collected stays."""
    cancelled = await page.app.runs.cancel(run_id, page.now)
    return redirect_to(f"/runs/{cancelled.id}", "run-cancelled")


@router.get("/runs/{run_id}")
async def show_run(page: ReaderPage, run_id: str) -> Response:
    run = await page.app.runs.show(run_id, page.now)
    return page.render("run.html", run=run, report=run.report)
