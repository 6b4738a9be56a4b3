"""Accounts with the progress of each, one account in full, and feeds: accounts of Threads that are polled."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Form, Path, Query
from fastapi.responses import RedirectResponse, Response

from mistnet.governor.model import THREADS_SOURCE
from mistnet.graph.follows.listing import Follows
from mistnet.graph.follows.model import Side, SyncMode
from mistnet.operations.runs.model import NeedsConfirmation
from mistnet.prices.store.related_products import AccountProducts
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import own_posts, reposts
from mistnet.social.errors import BadFeed, BadHandle
from mistnet.social.feeds import read_feed_handle
from mistnet.social.model import Platform, UserId, X, read_handle
from mistnet.social.store.account_pages import AccountPages
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import read_cursor
from mistnet.social.store.tracking import NewSuggestion, Refusals, TrackingStore
from mistnet.social.store.tracking import SuggestionResult as Suggested
from mistnet.social.tracking import repair_sweeps, track_handles, track_ids
from mistnet.sources.x.follows import ask_for_syncs
from mistnet.sources.x.quotes import TrackBill, quote_follows, quote_tracking
from mistnet.web.dependencies import OnPlatform
from mistnet.web.errors import NotFound, require
from mistnet.web.fields import LARGEST_ID, BeforeId, NumberPath, PostPlace, QueryText, Word, one_of, without_nul
from mistnet.web.pages.charts import RHYTHMS, account_row, account_rows, heat_map, history_plots, rhythm_of, strip_of
from mistnet.web.pages.offer_charts import SPARK_HEIGHT, SPARK_WIDTH, spark
from mistnet.web.pages.plots import line_plot
from mistnet.web.pages.render import Confirmed, OperatorPage, PageRequest, ReaderPage, redirect_to

router = APIRouter(include_in_schema=False)
_PAGE: Final = 16
_POSTS: Final = 10
_NEWS: Final = 12
_COUNTS: Final = 500
_PRODUCTS: Final = 6


@router.get("/accounts")
async def accounts(
    page: ReaderPage,
    *,
    platform: OnPlatform = None,
    q: QueryText = "",
    state: Word = "",
    after: Annotated[str | None, Query(max_length=200)] = None,
    priced: Annotated[int | None, Query(alias="credits", ge=0, le=LARGEST_ID)] = None,
) -> Response:
    chosen = one_of(AccountState, state)
    return await _list(page, words=q, state=chosen, after=after, platform=platform or X, priced=priced)


async def _list(
    page: PageRequest,
    *,
    words: str = "",
    state: AccountState | None = None,
    after: str | None = None,
    platform: Platform = X,
    **form: Any,
) -> Response:
    """The list, with the form as it was sent and why nothing was done yet."""
    app, dashboard = page.app, page.dashboard
    listed = await AccountPages(app.database, platform).page(words=words, state=state, after=after, limit=_PAGE)
    account_counts, queue = await dashboard.account_counts.get(), await dashboard.queue.get()
    waiting = [] if after else await TrackingStore(app.database, app.job_writer).suggestions()
    return page.render(
        "accounts.html",
        rows=account_rows(listed.items, account_counts, dashboard.now),
        states=queue.accounts,
        every_state=list(AccountState),
        waiting=waiting[:_PAGE],
        refused=[] if after else await Refusals(app.database).list(_PAGE),
        words=words,
        chosen=state,
        after=after,
        more=listed.items[-1].place if listed.next else None,
        on="" if platform == X else f"platform={platform}",
        **{"problem": None, "given": "", "bill": None, "priced": None, **form},
    )


@router.post("/accounts")
async def add_account(
    page: OperatorPage, handle: Annotated[str, Form(max_length=500)] = "", confirmed: Confirmed = ""
) -> Response:
    """Track accounts by handle. Tracked ones fetch new posts.

    If the likely cost is above `confirm_credits`, the page shows it and asks for confirmation first.
    """
    try:
        suggestions = [NewSuggestion(handle=read_handle(each)) for each in handle.replace(",", " ").split() or [""]]
    except BadHandle as error:
        return await _list(page, given=handle, problem=str(error), status=400)
    bill: TrackBill | None = None
    if not confirmed:
        bill = await quote_tracking(page.app, [each.handle for each in suggestions])
        if bill and bill.needs_confirmation:
            return await _list(page, given=handle, bill=bill, status=409)
    results = {each.result for each in await track_handles(page.app, suggestions)}
    did = "added" if Suggested.ADDED in results else "known" if Suggested.TRACKED in results else "suggested"
    priced = f"&credits={bill.credits}" if bill and bill.quotes else ""
    return RedirectResponse(f"/accounts?did={did}{priced}", 303)


@router.post("/accounts/refused/{handle}/dismiss")
async def dismiss(page: OperatorPage, handle: Annotated[str, Path(max_length=50)]) -> Response:
    """Remove a refused handle from the list."""
    reason = f"withdrawn on the dashboard by {page.caller.name}"
    gone = await TrackingStore(page.app.database, page.app.job_writer).untrack(handle, reason, now=page.now)
    if not gone.known:
        raise NotFound(f"a refusal of @{handle}")
    return redirect_to("/accounts", "dismissed")


@router.post("/accounts/{user_id}/untrack")
async def untrack(page: OperatorPage, user_id: NumberPath) -> Response:
    reason = f"untracked on the dashboard by {page.caller.name}"
    gone = await TrackingStore(page.app.database, page.app.job_writer).untrack(UserId(user_id), reason, now=page.now)
    if not gone.known:
        raise NotFound(f"account {user_id}")
    return redirect_to(f"/accounts/{user_id}", "untracked")


@router.post("/accounts/{user_id}/look")
async def look_again(page: OperatorPage, user_id: NumberPath) -> Response:
    """Collect an account now. An untracked one is tracked again."""
    require(await AccountPages(page.app.database).progress(UserId(user_id)), f"account {user_id}")
    await track_ids(page.app, [UserId(user_id)])
    return redirect_to(f"/accounts/{user_id}", "known")


@router.post("/accounts/{user_id}/repair")
async def repair(page: OperatorPage, user_id: NumberPath) -> Response:
    """Read a suspect history again, and retry failed sweeps."""
    progress = require(await Coverage(page.app.database).account_by_id(UserId(user_id)), f"account {user_id}")
    await repair_sweeps(page.app, progress)
    return redirect_to(f"/accounts/{user_id}", "repairing")


@router.post("/accounts/{user_id}/follow-sync")
async def sync_follows(page: OperatorPage, user_id: NumberPath, confirmed: Confirmed = "") -> Response:
    """Read both lists as far as they are new. A sync that is under way continues."""
    own, name = UserId(user_id), page.caller.name
    require(await AccountPages(page.app.database).progress(own), f"account {user_id}")
    try:
        await ask_for_syncs(page.app, own, list(Side), SyncMode.INCREMENTAL, asked_by=name, confirmed=bool(confirmed))
    except NeedsConfirmation:
        return redirect_to(f"/accounts/{user_id}", "not-confirmed")
    return redirect_to(f"/accounts/{user_id}", "syncing")


@router.get("/accounts/{user_id}")
async def account(
    page: ReaderPage,
    user_id: NumberPath,
    *,
    platform: OnPlatform = None,
    before: PostPlace = None,
    follows_before: BeforeId = None,
) -> Response:
    app, on, own = page.app, platform or X, UserId(user_id)
    pages, follows = AccountPages(app.database, on), Follows(app.database)
    missing = f"account {user_id}; it may be a user that is not tracked"
    listed, profile = require(await pages.progress(own), missing), require(await pages.profile(own), missing)
    account_counts = await page.dashboard.account_counts.get()
    # Follows, the dashboard's counts and the actions of this page are about X alone: ids of other platforms may be
    # the same numbers.
    followed = own if on == X else UserId(0)
    stored = account_counts.stored.get(own, 0) if on == X else await pages.stored_posts(own)
    own_actions: dict[str, Any] = {} if on == X else {"operates": False}
    sweeps = await Coverage(app.database, on).sweeps(own)
    progress = msgspec.structs.replace(listed.progress, sweeps=sweeps, stored=stored)
    figures = await page.dashboard.figures.get((on, own))
    history = own_posts(progress, page.now)
    begin = history[0].since if history else progress.tracked_at
    posts = await pages.posts(own, before=read_cursor(before) if before else None, limit=_POSTS)
    news = await follows.news(followed, before=follows_before, limit=_NEWS)
    counted = await follows.count_history(followed, limit=_COUNTS)
    linked = await AccountProducts(app.database).page(on, own, limit=_PRODUCTS)
    return page.render(
        "account.html",
        row=account_row(msgspec.structs.replace(listed, progress=progress), account_counts, page.now),
        profile=profile,
        follow_bill=await quote_follows(app, followed, list(Side), SyncMode.INCREMENTAL),
        versions=await pages.versions(own),
        figures=figures,
        heat=heat_map(figures.hours if figures else {}),
        begin=begin,
        history=history_plots(figures.months, begin, page.now) if figures else {},
        conversations=figures.conversations if figures else (),
        reposts=strip_of(reposts(progress, page.now)),
        sweeps=sweeps,
        posts=posts.items,
        before=before,
        more=posts.next,
        news=news.items,
        follows_before=follows_before,
        more_news=news.next,
        known_since=await follows.known_since(followed),
        counted={side: some[-1] for side, some in counted.items() if some},
        follow_plots={
            side: line_plot([each.at for each in some], [each.users for each in some], side)
            for side, some in counted.items()
        },
        linked=[(each, spark(each)) for each in linked.items],
        more_linked=linked.next is not None,
        paper=(SPARK_WIDTH, SPARK_HEIGHT),
        on="" if on == X else f"platform={on}",
        **own_actions,
    )


_FEEDS: Final = 20
_OFTEN: Final = {"": "as in the settings", **{word: rhythm[0] for word, rhythm in RHYTHMS.items() if word}}
FeedPath = Annotated[str, Path(max_length=100), without_nul]


@router.get("/feeds")
async def feeds(page: ReaderPage, after: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0) -> Response:
    return await _list_feeds(page, after)


async def _list_feeds(page: PageRequest, after: int = 0, **form: Any) -> Response:
    app = page.app
    listed = await app.feeds.store.page(after=after, limit=_FEEDS)
    polls = await app.feeds.store.jobs([each.id for each in listed.items])
    usual = app.settings.feed_every_seconds
    return page.render(
        "feeds.html",
        rows=[(each, polls.get(each.id), rhythm_of(each.every_seconds or usual)) for each in listed.items],
        often=_OFTEN,
        has_token=app.feeds.keeper.token is not None,
        source=await app.sources.state(THREADS_SOURCE),
        after=after,
        more=listed.next,
        **{"problem": None, "given": {"handle": "", "every": ""}, **form},
    )


@router.post("/feeds")
async def add_feeds(
    page: OperatorPage,
    handle: Annotated[str, Form(max_length=5_000)] = "",
    every: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Add feeds by handle or URL. Refused ones are tried again."""
    try:
        handles = [read_feed_handle(each) for each in handle.replace(",", " ").split() or [""]]
    except BadFeed as error:
        given = {"handle": handle, "every": every}
        return await _list_feeds(page, problem=str(error), given=given, status=400)
    seconds = RHYTHMS.get(every, ("", None))[1]
    added = await page.app.feeds.store.add(handles, every_seconds=seconds, job_writer=page.app.job_writer)
    results = {each.result for each in added}
    return redirect_to("/feeds", "feed-" + next(each for each in ("added", "again", "known") if each in results))


@router.post("/feeds/{handle}/poll")
async def poll_feed(page: OperatorPage, handle: FeedPath) -> Response:
    """Poll a feed now. A poll that is under way continues."""
    await page.app.feeds.store.poll([handle], job_writer=page.app.job_writer)
    return redirect_to("/feeds", "feed-polled")


@router.post("/feeds/{handle}/remove")
async def remove_feed(page: OperatorPage, handle: FeedPath) -> Response:
    await page.app.feeds.store.remove(handle)
    return redirect_to("/feeds", "feed-removed")
