"""The command that serves the simulated platforms on this machine."""

import asyncio
import errno
import re
import shlex
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from mistnet.cli.command import Invocation, program_name, shared_options
from mistnet.cli.input import flag, option
from mistnet.cli.output import document
from mistnet.cli.processes import stopping
from mistnet.shops.catalog import CRAWL_LANES

if TYPE_CHECKING:
    from mistnet.sim.server import Box

_CREDITS: Final = 100_000_000
_LONGEST_SECONDS: Final = 60.0
_KEY: Final = re.compile(r"[!-+\--~]+")
_UNUSABLE: Final = (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL)
_SHOWN: Final = 12
_TRACKED: Final = 3
Latency: TypeAlias = tuple[float, float]


def read_latency(given: str) -> Latency:
    """LOW,HIGH in seconds; one number is both."""
    try:
        low, high = (float(part) for part in (given.split(",") if "," in given else (given, given)))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low <= high <= _LONGEST_SECONDS:
        raise typer.BadParameter(
            f"write it as LOW,HIGH in seconds up to {_LONGEST_SECONDS:g}, for example 0.05,0.2", param_hint="--latency"
        )
    return low, high


def read_key(given: str) -> str:
    if not _KEY.fullmatch(given):
        raise typer.BadParameter("a key is ASCII, without spaces and commas", param_hint="--key")
    return given


def read_speed(given: float) -> float:
    if not given > 0:
        raise typer.BadParameter(
            "time must advance, or no rate limit ever ends: give a number above 0, for example 0.001",
            param_hint="--speed",
        )
    return given


@shared_options
async def serve(  # noqa: PLR0913 (one option for each property of the world)
    invocation: Invocation,
    *,
    seed: Annotated[int, option("--seed", None, "Determines the world and its faults.")] = 7,
    size: Annotated[
        Literal["tiny", "small", "medium", "large"],
        option("--size", "tiny|small|medium|large", "600, 8,000, 100,000 or 1,000,000 posts."),
    ] = "small",
    port: Annotated[int, option("--port", None, "0 chooses a free one.", min=0, max=65_535)] = 8765,
    faults: Annotated[
        Literal["none", "all"], option("--faults", "none|all", "Whether calls sometimes fail, in every known way.")
    ] = "none",
    latency: Annotated[str, option("--latency", "LOW,HIGH", "How long answers take, in seconds.")] = "0,0",
    speed: Annotated[float, option("--speed", None, "Simulated seconds per second, more than 0.", max=1e6)] = 1.0,
    tier: Annotated[
        Literal["free", "paid", "unlimited"], option("--tier", "free|paid|unlimited", "The rate limit of the key.")
    ] = "paid",
    key: Annotated[str, option("--key", "KEY", "The API key that is accepted.")] = "sim-key",
    quiet: Annotated[
        bool,
        flag("--quiet-accounts", "The last account starts to post within a day; the one before it never retweets."),
    ] = False,
    restless: Annotated[
        bool, flag("--restless-people", "Many people are suspended, leave or are renamed over time.")
    ] = False,
) -> None:
    """Serve a simulated TwitterAPI.io, Threads, shops and eBay to this machine only, until Ctrl-C.

    Prints the address, the key, the handles worth tracking, and what to type in another terminal.
    """
    from mistnet.sim.server import pack, serving  # noqa: PLC0415
    from mistnet.sim.service import Key, Tier  # noqa: PLC0415

    balance = Key(name=read_key(key), tier=Tier(tier), recharge_credits=_CREDITS)
    box = pack(
        seed=seed,
        size=size,
        faults=faults,
        latency_seconds=read_latency(latency),
        speed=read_speed(speed),
        key=balance,
        quiet=quiet,
        restless=restless,
    )
    stopped = asyncio.Event()
    try:
        async with serving(box.asgi(), port=port) as url:
            with stopping(stopped.set, meaning="the simulated world ends"):
                _print_address(invocation, box, url, key)
                await stopped.wait()
    except OSError as error:
        # Other errors are of the server itself, and no option mends them.
        if error.errno not in _UNUSABLE:
            raise
        why = "it is already in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise typer.BadParameter(
            f"port {port} cannot be used: {why}; give another one, or 0 for a free one", param_hint="--port"
        ) from None


def _print_address(invocation: Invocation, box: "Box", url: str, key: str) -> None:
    from mistnet.sim.market import CLIENT_ID, CLIENT_SECRET, HUB_KEY, HUB_VARIABLE  # noqa: PLC0415 (as above)

    handles = box.handles
    more = f" and {len(handles) - _SHOWN} more" if len(handles) > _SHOWN else ""
    lines = [
        f"export MISTNET_X_BASE_URL={url}",
        f"export MISTNET_X_API_KEY={shlex.quote(key)}",
        f"{program_name()} track {' '.join(handles[:_TRACKED])}",
    ]
    # The other simulated platforms, and the settings that make mistnet use them.
    also = {
        "Threads": [f"export MISTNET_THREADS_BASE_URL={url} MISTNET_THREADS_TOKEN={next(iter(box.threads.tokens))}"],
        "shops": [
            f"export MISTNET_CRAWL_LANES={','.join(CRAWL_LANES)}",
            f'export MISTNET_CRAWL_VIA=\'{{"*": "{url}"}}\'',
        ],
        "eBay's API": [
            f"export MISTNET_EBAY_BASE_URL={url}",
            f"export MISTNET_EBAY_CLIENT_ID={CLIENT_ID} MISTNET_EBAY_CLIENT_SECRET={CLIENT_SECRET}",
        ],
        "price sources": [f"{url}/_sim/market has the file for MISTNET_PRICE_SOURCES; export {HUB_VARIABLE}={HUB_KEY}"],
    }
    width = max(map(len, also))
    text = [
        f"A simulated TwitterAPI.io answers at {url}",
        f"key             {key}",
        f"worth tracking  {', '.join(handles[:_SHOWN])}{more}",
        f"what is true    {url}/_sim/account?handle={handles[0]}",
        "\nType in another terminal:\n",
        *(f"  {line}" for line in lines),
        f"\nThen `{program_name()} work` collects, and `{program_name()} status` shows progress. Ctrl-C stops it.",
        "\nIt also simulates these; set them before `work`:\n",
        *(f"  {name:<{width}}  {line}" for name, settings in also.items() for line in settings),
    ]
    invocation.out.show(document(url=url, key=key, handles=handles, next=lines, also=also), "\n".join(text))
