"""Accounts: the list with the progress of each, and one account in full."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mistnet.app import App
from mistnet.graph.follows.listing import Follows
from mistnet.graph.follows.model import Side, SyncMode
from mistnet.kit.view import ListPage
from mistnet.operations.runs.model import NeedsConfirmation
from mistnet.prices.lineage.account_products import AccountProducts
from mistnet.social.accounts import AccountState
from mistnet.social.coverage import reposts
from mistnet.social.errors import BadHandle
from mistnet.social.model import UserId, X, read_handle
from mistnet.social.store.account_pages import AccountPages, Listed
from mistnet.social.store.coverage import Coverage
from mistnet.social.store.post_listing import POST_CURSOR, read_cursor
from mistnet.social.store.tracking import NewSuggestion, Refusals, TrackingStore
from mistnet.social.store.tracking import SuggestionResult as Suggested
from mistnet.social.tracking import repaired, track_handles, track_ids
from mistnet.sources.x.follows import ask_for_syncs
from mistnet.sources.x.quotes import TrackBill, quote_follows, quote_tracking
from mistnet.web.auth import Operator, Reader
from mistnet.web.dependencies import Mistnet, OnPlatform
from mistnet.web.errors import NotFound
from mistnet.web.pages.dashboard import CurrentDashboard, Dashboard
from mistnet.web.pages.drawings import account_row, account_rows, follows_chart, heat_map, strip_of
from mistnet.web.pages.offer_charts import SPARK_HEIGHT, SPARK_WIDTH, spark
from mistnet.web.pages.render import page
from mistnet.web.tokens import Caller

router = APIRouter(include_in_schema=False)
_PAGE: Final = 50
_POSTS: Final = 20
_NEWS: Final = 20
_COUNTS: Final = 500
_COUNTED: Final = 10_000
_PRODUCTS: Final = 6
LargestId: Final = 2**63 - 1
UserPath = Annotated[int, Path(ge=1, le=LargestId)]
BeforeId = Annotated[int | None, Query(ge=1, le=LargestId)]
PostPlace = Annotated[str | None, Query(pattern=POST_CURSOR)]


@router.get("/accounts")
async def accounts(
    request: Request,
    caller: Reader,
    app: Mistnet,
    dashboard: CurrentDashboard,
    *,
    platform: OnPlatform = None,
    q: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[str | None, Query(max_length=200)] = None,
    priced: Annotated[int | None, Query(alias="credits", ge=0, le=LargestId)] = None,
) -> HTMLResponse:
    chosen = AccountState(state) if state in set(AccountState) else None
    pages = AccountPages(app.database, platform or X)
    listed = await pages.page(words=q.replace("\x00", ""), state=chosen, after=after, limit=_PAGE)
    shown = {
        "words": q,
        "chosen": chosen,
        "after": after,
        "priced": priced,
        "on": f"platform={platform}" if platform not in (None, X) else "",
    }
    return await _list(request, caller, app, dashboard, listed=listed, **shown)


async def _list(
    request: Request, caller: Caller, app: App, dashboard: Dashboard, *, listed: ListPage[Listed], **shown: Any
) -> HTMLResponse:
    account_counts, queue = await dashboard.account_counts(), await dashboard.queue()
    waiting = [] if shown["after"] else await TrackingStore(app.database, app.job_writer).suggestions()
    return page(
        request,
        "accounts.html",
        caller,
        rows=account_rows(listed.items, account_counts, dashboard.now),
        states=queue.accounts,
        every_state=list(AccountState),
        waiting=waiting[:_PAGE],
        refused=[] if shown["after"] else await Refusals(app.database).standing(_PAGE),
        more=listed.items[-1].place if listed.next else None,
        **{"problem": None, "given": "", "bill": None, "priced": None, "on": "", **shown},
    )


@router.post("/accounts")
async def add_account(
    request: Request,
    caller: Operator,
    app: Mistnet,
    dashboard: CurrentDashboard,
    handle: Annotated[str, Form(max_length=500)] = "",
    confirmed: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Track accounts by handle. Tracked ones fetch new posts.

    If the likely cost is above `confirm_credits`, the page shows it and asks for confirmation first.
    """
    try:
        wanted = [NewSuggestion(handle=read_handle(each)) for each in handle.replace(",", " ").split() or [""]]
    except BadHandle as error:
        return await _ask_again(request, caller, app, dashboard, given=handle, problem=str(error))
    bill: TrackBill | None = None
    if not confirmed:
        bill = await quote_tracking(app, [each.handle for each in wanted])
        if bill and bill.needs_confirmation:
            return await _ask_again(request, caller, app, dashboard, given=handle, bill=bill)
    results = {each.result for each in await track_handles(app, wanted)}
    did = "added" if Suggested.ADDED in results else "known" if Suggested.TRACKED in results else "suggested"
    priced = f"&credits={bill.credits}" if bill and bill.quotes else ""
    return RedirectResponse(f"/accounts?did={did}{priced}", 303)


async def _ask_again(request: Request, caller: Caller, app: App, dashboard: Dashboard, **shown: Any) -> HTMLResponse:
    """The first page of accounts, with the form as it was sent and why nothing was done yet."""
    listed = await AccountPages(app.database).page(limit=_PAGE)
    shown = {"words": "", "chosen": None, "after": None, **shown}
    response = await _list(request, caller, app, dashboard, listed=listed, **shown)
    response.status_code = 400 if shown.get("problem") else 409
    return response


@router.post("/accounts/refused/{handle}/dismiss")
async def dismiss(caller: Operator, app: Mistnet, handle: Annotated[str, Path(max_length=50)]) -> RedirectResponse:
    """Remove a refused handle from the list."""
    reason = f"withdrawn on the dashboard by {caller.name}"
    gone = await TrackingStore(app.database, app.job_writer).untrack(handle, reason, now=app.database.clock.now())
    if not gone.known:
        raise NotFound(f"a refusal of @{handle}")
    return RedirectResponse("/accounts?did=dismissed", 303)


@router.post("/accounts/{user_id}/untrack")
async def untrack(caller: Operator, app: Mistnet, user_id: UserPath) -> RedirectResponse:
    tracking_store = TrackingStore(app.database, app.job_writer)
    reason = f"untracked on the dashboard by {caller.name}"
    gone = await tracking_store.untrack(UserId(user_id), reason, now=app.database.clock.now())
    if not gone.known:
        raise NotFound(f"account {user_id}")
    return RedirectResponse(f"/accounts/{user_id}?did=untracked", 303)


@router.post("/accounts/{user_id}/look")
async def look_again(_caller: Operator, app: Mistnet, user_id: UserPath) -> RedirectResponse:
    """Collect an account now. An untracked one is tracked again."""
    if await AccountPages(app.database).progress(UserId(user_id)) is None:
        raise NotFound(f"account {user_id}")
    await track_ids(app, [UserId(user_id)])
    return RedirectResponse(f"/accounts/{user_id}?did=known", 303)


@router.post("/accounts/{user_id}/repair")
async def repair(_caller: Operator, app: Mistnet, user_id: UserPath) -> RedirectResponse:
    """Read a suspect history again, and retry failed sweeps."""
    progress = await Coverage(app.database).account_by_id(UserId(user_id))
    if progress is None:
        raise NotFound(f"account {user_id}")
    await repaired(app, progress)
    return RedirectResponse(f"/accounts/{user_id}?did=repairing", 303)


@router.post("/accounts/{user_id}/follow-sync")
async def sync_follows(
    caller: Operator, app: Mistnet, user_id: UserPath, confirmed: Annotated[str, Form(max_length=10)] = ""
) -> RedirectResponse:
    """Read both lists as far as they are new. A sync that is under way continues."""
    if await AccountPages(app.database).progress(UserId(user_id)) is None:
        raise NotFound(f"account {user_id}")
    try:
        await ask_for_syncs(
            app,
            UserId(user_id),
            list(Side),
            SyncMode.INCREMENTAL,
            asked_by=caller.name,
            confirmed=bool(confirmed),
        )
    except NeedsConfirmation:
        return RedirectResponse(f"/accounts/{user_id}?did=not-confirmed", 303)
    return RedirectResponse(f"/accounts/{user_id}?did=syncing", 303)


@router.get("/accounts/{user_id}")
async def account(
    request: Request,
    caller: Reader,
    app: Mistnet,
    dashboard: CurrentDashboard,
    user_id: UserPath,
    *,
    platform: OnPlatform = None,
    before: PostPlace = None,
    follows_before: BeforeId = None,
) -> HTMLResponse:
    on, own = platform or X, UserId(user_id)
    pages, follows = AccountPages(app.database, on), Follows(app.database)
    listed, profile = await pages.progress(own), await pages.profile(own)
    if listed is None or profile is None:
        raise NotFound(f"account {user_id}; it may be a user that is not tracked")
    account_counts = await dashboard.account_counts()
    # Follows, the dashboard's counts and the actions of this page are about X alone: ids of other platforms may be
    # the same numbers.
    followed = own if on == X else UserId(0)
    stored = account_counts.stored.get(own, 0) if on == X else await pages.stored_posts(own, most=_COUNTED)
    own_actions: dict[str, Any] = {} if on == X else {"operates": False}
    sweeps = await Coverage(app.database, on).sweeps(own)
    progress = msgspec.structs.replace(listed.progress, sweeps=sweeps, stored=stored)
    posts = await pages.posts(own, before=read_cursor(before) if before else None, limit=_POSTS)
    news = await follows.news(followed, before=follows_before, limit=_NEWS)
    counted = await follows.count_history(followed, limit=_COUNTS)
    linked = await AccountProducts(app.database).page(on, own, limit=_PRODUCTS)
    now = dashboard.now
    return page(
        request,
        "account.html",
        caller,
        row=account_row(msgspec.structs.replace(listed, progress=progress), account_counts, now),
        profile=profile,
        follow_bill=await quote_follows(app, followed, list(Side), SyncMode.INCREMENTAL),
        versions=await pages.versions(own),
        heat=heat_map(await pages.hours(own)),
        reposts=strip_of(reposts(progress, now)),
        sweeps=sweeps,
        posts=posts,
        before=before,
        more=posts[-1].cursor if len(posts) == _POSTS else None,
        news=news.items,
        follows_before=follows_before,
        more_news=news.next,
        known_since=await follows.known_since(followed),
        counted={side: some[-1] for side, some in counted.items() if some},
        follows_chart=follows_chart(counted),
        linked=[(each, spark(each)) for each in linked.items],
        more_linked=linked.next is not None,
        paper=(SPARK_WIDTH, SPARK_HEIGHT),
        on="" if on == X else f"platform={on}",
        **own_actions,
    )
