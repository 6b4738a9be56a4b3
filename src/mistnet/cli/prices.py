"""The prices commands: read prices as people write them, and watch the prices of products and items."""

import sys
from typing import Annotated, Any, Final

import msgspec
import typer

from mistnet.cli.command import Invocation, shared_options
from mistnet.cli.errors import complain
from mistnet.cli.input import lines_of
from mistnet.shops.extraction.price_text import NoPrice, ParsedPrice, parse_price

SOME_BAD: Final = 3
_SHAPE: Final = 'a line is a JSON object such as {"text": "NT$1,280", "currency_hint": null, "site": null}'
Lines = Annotated[str, typer.Argument(metavar="[FILE]", help="JSON lines; - or nothing reads standard input.")]


class PriceLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one line asks: a text, and what helps to tell its currency."""

    text: str | None
    currency_hint: str | None = None
    site: str | None = None


_DECODER: Final = msgspec.json.Decoder(PriceLine)


@shared_options
async def parse(invocation: Invocation, file: Lines = "-") -> int:  # noqa: ARG001 (reads no settings)
    """Read price texts: JSON lines in, JSON lines out, one for each and in order.

    A line is {"text", "currency_hint", "site"}; its answer is {"min", "max", "currency", "kind"}, all null with a
    "reason" where the text states no price. A line that cannot be read is answered by {"error", "line"}; then the
    exit code is 3.
    """
    bad = 0
    with lines_of(file) as lines:
        for number, line in enumerate(lines, 1):
            answer = answered(line, number)
            bad += "error" in answer
            sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
            sys.stdout.flush()
    if bad:
        complain(f"{bad} of the lines could not be read: {_SHAPE}")
    return SOME_BAD if bad else 0


def answered(line: bytes, number: int) -> dict[str, Any]:
    try:
        asked = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeError) as error:
        return {"error": str(error), "line": number}
    return fields(parse_price(asked.text or "", currency_hint=asked.currency_hint, site=asked.site))


def fields(price: ParsedPrice | NoPrice) -> dict[str, Any]:
    """Amounts are text, so that no reader makes floats of them."""
    if isinstance(price, NoPrice):
        return {"min": None, "max": None, "currency": None, "kind": None, "reason": price.reason}
    return {
        "min": f"{price.min:f}",
        "max": f"{price.max:f}",
        "currency": price.currency,
        "kind": price.kind.value,
    }
