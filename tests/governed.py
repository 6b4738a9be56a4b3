"""One real process behind a governor: calls a pretended source as long as it is told to, and says what happened.

    python -m tests.governed URL FOLDER RATE

While the file `down` is in the folder every call fails; when `stop` is, the process ends. Each call is one line of
JSON: when it was let in (by the shared clock), when it began and ended (by this machine's), whether it was a probe.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from mistnet.governor.errors import SourceDown
from mistnet.governor.governor import Governor
from mistnet.governor.grants import GovernorLimits
from mistnet.governor.model import CallPurpose, KeyLabel, SourceName
from mistnet.governor.store import DatabaseSourceStore
from mistnet.kit.database import Database
from mistnet.queue.errors import NotNow

SHOP, KEY = SourceName("shop"), KeyLabel("key")
BURST: Final = 5
FAILURES: Final = 5
COOLDOWN: Final = timedelta(seconds=2)
PROBE_SECONDS: Final = 0.3
ABREAST: Final = 4


async def main(url: str, folder: Path, per_second: float) -> None:
    database = Database(url)
    await database.correct_clock()
    limits = GovernorLimits(
        rate_per_minute=per_second * 60, burst=BURST, breaker_failures=FAILURES, breaker_cooldown=COOLDOWN
    )
    governor = Governor(SHOP, {KEY: ""}, store=DatabaseSourceStore(database), clock=database.clock, limits=limits)
    print("ready", flush=True)
    sys.stdin.readline()
    async with governor.opened(), asyncio.TaskGroup() as callers:
        for _ in range(ABREAST):
            callers.create_task(keep_calling(governor, folder))
    await database.close()


async def keep_calling(governor: Governor, folder: Path) -> None:
    while not (folder / "stop").exists():
        try:
            await one_call(governor, folder)
        except NotNow:
            await asyncio.sleep(0.02)
        except SourceDown:
            await asyncio.sleep(0.001)


async def one_call(governor: Governor, folder: Path) -> None:
    governed = governor.call("search", most=0, purpose=CallPurpose())
    async with governed as call:
        begun, is_probe = time.monotonic(), governed.probe_until is not None
        await asyncio.sleep(PROBE_SECONDS if is_probe else 0.001)
        is_down = (folder / "down").exists()
        told = {"at": governed.at.timestamp(), "begun": begun, "ended": time.monotonic(), "probe": is_probe}
        print(json.dumps({**told, "ok": not is_down}), flush=True)
        if is_down:
            raise SourceDown(SHOP, "503")
        call.settle(items=1, credits_due=0)


def lines(text: str) -> Iterator[dict[str, float | bool]]:
    for line in text.splitlines():
        yield json.loads(line)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))
