"""Commands for prices that are in doubt or wrong: list them, correct them by hand, export corrections as test cases."""

from __future__ import annotations

import getpass
import sys
from decimal import Decimal, InvalidOperation
from typing import Annotated

import msgspec
import typer

from mistnet.app import App, open_app
from mistnet.cli.command import Invocation, app_command, shared_options
from mistnet.cli.input import BeforeOption, LimitOption, argument, flag, option
from mistnet.cli.output import Grid, Output, document, next_page, to_json_line
from mistnet.kit.text import counted, money
from mistnet.prices.service import correct_offer
from mistnet.shops.model import Availability, OfferId
from mistnet.shops.store.corrections import Correction, CorrectionPages, case_of


class AskedPrice(msgspec.Struct, frozen=True):
    """A price as it is typed: an amount, and its currency where another one was read."""

    amount: Decimal
    currency: str | None = None


def price_of(given: str) -> AskedPrice:
    written, _, currency = given.strip().partition(" ")
    try:
        found = Decimal(written)
    except InvalidOperation:
        found = Decimal("NaN")
    code = currency.strip().upper()
    if not found.is_finite() or found < 0 or (code and not (len(code) == 3 and code.isascii() and code.isalpha())):
        raise typer.BadParameter(f"{given!r} is no price; write it like 1049.50 or '1049.50 EUR'")
    return AskedPrice(found, code or None)


@app_command
async def report(app: App, out: Output, *, limit: LimitOption = 50, before: BeforeOption = None) -> None:
    """List offers that are in doubt, the newest first: check the page, then run `mistnet products correct`."""
    found = await CorrectionPages(app.database).doubted(before=before, limit=limit)
    grid = Grid.of(
        found.items,
        "offer, product, observed (UTC), read as, sure, doubt, title, url",
        offer="id",
        product="product_id",
        read_as=lambda each: money(each.amount, each.currency),
        sure=lambda each: f"{each.confidence:.2f}",
        doubt=lambda each: each.doubt[:100],
        title=lambda each: (each.title or "")[:60],
        url=lambda each: each.url[:120],
        empty="no offer is in doubt",
    )
    out.show(document(offers=found.items, next_before=found.next), grid, *next_page(found.next))


@shared_options
async def correct(
    invocation: Invocation,
    offer: Annotated[int, argument("OFFER", "The offer's id.", min=1)],
    *,
    price: Annotated[
        str | None,
        option("--price", "AMOUNT|'AMOUNT CODE'", "The correct price, with its currency if another one was read."),
    ] = None,
    list_price: Annotated[str | None, option("--list-price", "AMOUNT", "The price before a reduction.")] = None,
    availability: Annotated[
        Availability | None, option("--availability", "|".join(Availability), "If another one was read.")
    ] = None,
    confirm: Annotated[bool, flag("--confirm", "What was read is right: it is not in doubt any more.")] = False,
    no_price: Annotated[bool, flag("--no-price", "The page has no price.")] = False,
    note: Annotated[str | None, option("--note", "TEXT", "Why, for those who read it later.")] = None,
    by: Annotated[str | None, option("--by", "NAME", "Who says so. Default: the user's name.")] = None,
) -> None:
    """Correct an offer that was read wrongly, or confirm one that is in doubt.

    It applies to this offer, and when its page is read with the same result again. Items that use it are valued
    again; price watches use it from the next visit.
    """
    if (price is not None) + confirm + no_price != 1:
        raise typer.BadParameter("pass one of --price, --confirm and --no-price")
    asked, listed = (price_of(each) if each is not None else None for each in (price, list_price))
    async with open_app(invocation.settings) as app:
        read = await CorrectionPages(app.database).offer(OfferId(offer))
        if confirm and read.amount is not None:
            asked = AskedPrice(read.amount)
        if confirm and asked is None:
            raise typer.BadParameter("no price was read that could be confirmed: pass --price")
        currency = (asked.currency or read.currency) if asked else None
        if asked and currency is None:
            raise typer.BadParameter("the page told no currency: pass it too, like --price '1049.50 EUR'")
        wanted = Correction(
            offer_id=read.id,
            author=by or getpass.getuser(),
            amount=asked.amount if asked else None,
            currency=currency,
            list_amount=(listed.amount if listed else read.list_amount) if asked else None,
            availability=availability or (Availability(read.availability) if read.availability else None),
            note=note,
        )
        corrected = await correct_offer(app, wanted)
    was, now = (
        money(read.amount, read.currency) or "no price",
        money(corrected.amount, corrected.currency) or "no price",
    )
    said = f"offer {offer} is confirmed: {now}" if confirm else f"offer {offer} is corrected: {now} instead of {was}"
    invocation.out.show(document(offer=corrected, correction=wanted), said)


@app_command
async def corrections(
    app: App,
    out: Output,
    *,
    cases: Annotated[
        bool, flag("--cases", "As test cases, one JSON object a line: candidates without the page's own text.")
    ] = False,
    limit: LimitOption = 50,
    before: BeforeOption = None,
) -> None:
    """Show manual corrections, when and by whom, the newest first."""
    found = await CorrectionPages(app.database).corrections(before=before, limit=limit)
    if cases:
        sys.stdout.writelines(to_json_line(case_of(each)) + "\n" for each in found.items)
        return
    grid = Grid(
        title=counted(len(found.items), "correction"),
        columns=("id", "offer", "when (UTC)", "by", "read as", "is", "note", "title"),
        rows=[
            (
                each.id,
                each.offer_id,
                each.at,
                each.author,
                money(each.read_amount, each.read_currency),
                money(each.amount, each.currency) or "no price",
                (each.note or "")[:80],
                (each.title or each.url)[:60],
            )
            for each in found.items
        ],
        empty="nothing was corrected yet",
    )
    out.show(document(corrections=found.items, next_before=found.next), grid, *next_page(found.next))
