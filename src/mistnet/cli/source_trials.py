"""The command that queries one price source and shows how each of its listings is read. It stores nothing."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.output import Grid, document
from mistnet.governor.model import CallPurpose, SourceName
from mistnet.kit.errors import did_you_mean
from mistnet.prices.matching import match_listing
from mistnet.prices.model import Item, ItemId, ItemState, PriceAnswer, PriceListing, attributes_of

_PAYLOAD: Final = 200


@shared_options
async def try_source(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The source: ebay_api, a lane, or a shop of your file.")],
    *,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="What the thing is called.")],
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="Such as year=1921; may be given several times."),
    ] = None,
    urls: Annotated[
        list[str] | None, typer.Option("--url", metavar="URL", help="A page of the thing, for the lanes.")
    ] = None,
) -> None:
    """Ask one source for a thing and show what is read of each listing. No item, no price is stored."""
    async with open_app(invocation.settings) as app:
        source = app.valuing.plain.get(SourceName(name))
        if source is None:
            known = sorted(app.valuing.plain)
            raise typer.BadParameter(
                f"there is no source of prices {name!r}.{did_you_mean(name, known)} Known here: {', '.join(known)}. "
                f"ebay_api needs ebay_client_id and ebay_client_secret; other shops come from the file `price_sources`",
                param_hint="NAME",
            )
        item = _item(app, title, attributes or [], urls or [])
        async with app.sources[SourceName(name)].opened():
            answer = await source.search(item, purpose=CallPurpose(), fresh=True)
    read = [_read(item, listing) for listing in answer.listings]
    odd = [{"problem": each.problem, "payload": _shown(each.payload)} for each in answer.unreadable]
    invocation.out.show(document(source=name, title=title, listings=read, unreadable=odd), *_blocks(name, answer, read))


def _item(app: App, title: str, attributes: Sequence[str], urls: Sequence[str]) -> Item:
    if not title.strip():
        raise typer.BadParameter("say what the thing is called", param_hint="--title")
    named = {}
    for given in attributes:
        key, sign, value = given.partition("=")
        if not sign or not key.strip() or not value.strip():
            raise typer.BadParameter(f"{given!r}: write it as NAME=VALUE, such as year=1921", param_hint="--attribute")
        named[key] = value
    now = app.database.clock.now()
    return Item(
        id=ItemId(0),
        title=title.strip(),
        attributes=attributes_of(named),
        urls=tuple(urls),
        state=ItemState.ACTIVE,
        added_at=now,
        changed_at=now,
    )


def _read(item: Item, listing: PriceListing) -> dict[str, Any]:
    found = match_listing(item, listing)
    return {
        "kind": listing.kind,
        "amount": f"{listing.amount:f}",
        "currency": listing.currency,
        "title": listing.title,
        "fits": found.fits,
        "strength": found.strength,
        "why": found.why,
        "condition": listing.condition,
        "bids": listing.bid_count,
        "external_id": listing.external_id,
        "observed_at": listing.observed_at,
        "url": listing.url,
    }


def _blocks(name: str, answer: PriceAnswer, read: Sequence[dict[str, Any]]) -> Sequence[Grid | str]:
    listings = Grid(
        title=f"What {name} answers",
        columns=("kind", "amount", "fits", "title", "id", "url"),
        rows=[
            (
                str(each["kind"]),
                f"{each['amount']} {each['currency']}",
                f"{each['strength']:.2f}" + (f" ({each['why']})" if each["why"] else ""),
                each["title"],
                each["external_id"] or "",
                each["url"],
            )
            for each in read
        ],
        empty=f"{name} lists nothing for this.",
    )
    odd = Grid(
        title="What could not be read",
        columns=("problem", "as it came"),
        rows=[(each.problem, _shown(each.payload)) for each in answer.unreadable],
    )
    return [listings, odd] if answer.unreadable else [listings]


def _shown(payload: bytes) -> str:
    return payload[:_PAYLOAD].decode("utf-8", "replace")
