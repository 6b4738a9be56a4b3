"""The search box of the header: leads to the account, post, job, product or link that was typed, or to a search."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from mistnet.app import App
from mistnet.kit.text import read_id
from mistnet.queue.model import JobId
from mistnet.shops.model import ProductId
from mistnet.shops.service import find_links
from mistnet.shops.store.link_pages import LinkFilter
from mistnet.shops.store.product_pages import ProductFilter, ProductPages
from mistnet.social.errors import BadHandle
from mistnet.social.model import PostId, UserId, X, read_handle
from mistnet.social.store.account_pages import AccountPages
from mistnet.social.store.coverage import Coverage
from mistnet.web.fields import QueryText
from mistnet.web.pages.render import ReaderPage

router = APIRouter(include_in_schema=False)
_POST: Final = re.compile(
    r"(?:https?://)?(?:www\.|mobile\.)?(?:x|twitter)\.com/[^/?#]+(?:/web)?/status/([0-9]{1,19})\b.*"
)
_NUMBERED: Final = re.compile(r"(job|post|account|product|link|item|segment|run)s?[ #]+([0-9a-f-]{1,36})")
_NAMED: Final = 50


@router.get("/go")
async def go(page: ReaderPage, q: QueryText = "") -> Response:
    return RedirectResponse(await _find(page.app, q.strip()) or f"/search?{urlencode({'q': q.strip()})}", 303)


async def _find(app: App, typed: str) -> str | None:
    if not typed:
        return "/search"
    if named := _NUMBERED.fullmatch(typed.lower()):
        return f"/{'conversation' if named[1] == 'post' else named[1]}s/{named[2]}"
    if post := _POST.fullmatch(typed):
        return f"/conversations/{post[1]}"
    if number := read_id(typed):
        return await _numbered(app, number)
    return await _account(app, typed) or await _link(app, typed) or await _product(app, typed)


async def _numbered(app: App, number: int) -> str | None:
    """Ids of jobs and products are small, those of posts and users are not: few numbers are ambiguous."""
    if await app.inspector.job(JobId(number)):
        return f"/jobs/{number}"
    if await Coverage(app.database).conversation_of(PostId(number)):
        return f"/conversations/{number}"
    for platform in app.platforms:
        if await AccountPages(app.database, platform).account(UserId(number)):
            return f"/accounts/{number}{'' if platform == X else f'?platform={platform}'}"
    return f"/products/{number}" if await ProductPages(app.database).one(ProductId(number)) else None


async def _account(app: App, typed: str) -> str | None:
    try:
        handle = read_handle(typed)
    except BadHandle:
        return None
    for platform in app.platforms:
        if found := await AccountPages(app.database, platform).account_called(handle):
            return f"/accounts/{found.user_id}{'' if platform == X else f'?platform={platform}'}"
    return None


async def _link(app: App, typed: str) -> str | None:
    """The product that a URL names, or the link itself."""
    if not typed.lower().startswith(("https://", "http://")):
        return None
    found = (await find_links(app, LinkFilter(words=typed, limit=1))).items
    if not found:
        return None
    return f"/products/{found[0].product_id}" if found[0].product_id else f"/links/{found[0].id}"


async def _product(app: App, typed: str) -> str | None:
    """The only product whose name begins so. Of several, none: posts may be meant."""
    found = (await ProductPages(app.database).list(ProductFilter(words=typed, limit=_NAMED))).items
    named = [each for each in found if (each.title or "").lower().startswith(typed.lower())]
    return f"/products/{named[0].id}" if len(named) == 1 else None
