"""The products somebody links, on whichever platform, with their price courses."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse

from mistnet.api.auth import Reader
from mistnet.api.errors import NotFound
from mistnet.api.pages.accounts import LargestId
from mistnet.api.pages.render import page
from mistnet.api.pages.sparks import HEIGHT, WIDTH, spark
from mistnet.api.parts import Mistnet
from mistnet.domain.social import Platform, UserId
from mistnet.store.account_products import AccountProducts, Spot, who_is

router = APIRouter(include_in_schema=False)
_PAGE: Final = 25
SomebodyPath = Annotated[int, Path(ge=-LargestId, le=LargestId)]


@router.get("/people/{platform}/{user_id}/products")
async def linked_products(
    request: Request,
    visitor: Reader,
    app: Mistnet,
    platform: str,
    user_id: SomebodyPath,
    before: Annotated[str, Query(max_length=45)] = "",
) -> HTMLResponse:
    if platform not in set(Platform):
        raise NotFound("such platform: there are x and threads")
    there, own = Platform(platform), UserId(user_id)
    async with app.database.read() as connection:
        who = await who_is(connection, there, own)
    if who is None:
        raise NotFound(f"user {user_id} of {there}")
    found = await AccountProducts(app.database).page(there, own, limit=_PAGE, before=spot_of(before))
    return page(
        request,
        "linked_products.html",
        visitor,
        who=who,
        linked=[(each, spark(each)) for each in found.products],
        paper=(WIDTH, HEIGHT),
        before=before,
        more=f"{found.next.post_id}.{found.next.product_id}" if found.next else None,
    )


def spot_of(written: str) -> Spot | None:
    """Two ids with a dot between; anything else begins at the beginning."""
    parts = written.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        return None
    post_id, product_id = (min(int(part), LargestId) for part in parts)
    return Spot(post_id=post_id, product_id=product_id)
