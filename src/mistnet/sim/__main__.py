"""Serve a simulated world: python -m mistnet.sim --seed 7 --size small --port 8765 --faults all."""

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from mistnet.sim.faults import PRESETS
from mistnet.sim.ledger import Key, Tier
from mistnet.sim.people import SIZES
from mistnet.sim.server import pack, serve


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m mistnet.sim", description="Serve a simulated world on this machine."
    )
    parser.add_argument("--seed", type=int, default=7, help="determines the world and its faults")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address")
    parser.add_argument("--port", type=int, default=8765, help="0 chooses a free one; the address is printed")
    parser.add_argument("--faults", choices=PRESETS, default="none")
    parser.add_argument("--latency", type=float, nargs=2, default=(0.0, 0.0), metavar=("LOW", "HIGH"), help="seconds")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per real second")
    parser.add_argument("--key", default="sim-key", help="the API key that is accepted")
    parser.add_argument("--credits", type=int, default=100_000_000)
    parser.add_argument("--tier", choices=list(Tier), default=Tier.PAID)
    parser.add_argument("--restless", action="store_true", help="many are suspended, leave or are renamed in time")
    parser.add_argument("--quiet", action="store_true", help="the last star has not posted yet, another never retweets")
    options = parser.parse_args(arguments)
    box = pack(
        seed=options.seed,
        size=options.size,
        faults=options.faults,
        latency_seconds=(options.latency[0], options.latency[1]),
        speed=options.speed,
        key=Key(name=options.key, tier=Tier(options.tier), recharge_credits=options.credits),
        restless=options.restless,
        quiet=options.quiet,
    )
    try:
        with suppress(KeyboardInterrupt):
            ready = partial(print, flush=True)
            asyncio.run(serve(box.asgi(), host=options.host, port=options.port, ready=ready))
    except OSError as error:
        parser.error(f"port {options.port} cannot be used: {error.strerror}")


if __name__ == "__main__":
    main()
