"""End a process whose event loop is blocked, before its leases expire and other workers meet the same job.

Two watchers, because a loop can block in two ways. A loop that computes is ended by a kernel timer that counts
CPU time: it fires even while C code holds the interpreter. A loop that waits for something is ended by a thread. Both
leave a process alone that was itself stopped, by Ctrl-Z or a sleeping machine.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from loguru import logger

STUCK: Final = 71
"""The exit code of a process that ended itself."""
_TICK_SECONDS: Final = 1.0


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """While open, the event loop must run at least once in this many seconds. Call it in the main thread."""
    loop = asyncio.get_running_loop()
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(loop, seconds, over), name="watchdog", daemon=True)
    rearming = loop.create_task(_rearm(seconds), name="watchdog")
    before = signal.getsignal(signal.SIGPROF)
    # Ends the process, after faulthandler has written its stack.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    faulthandler.register(signal.SIGPROF, file=2, all_threads=True, chain=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        rearming.cancel()
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.unregister(signal.SIGPROF)
        signal.signal(signal.SIGPROF, before)
        thread.join()


async def _rearm(seconds: float) -> None:
    """Reset the timer as long as the loop runs."""
    while True:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        await asyncio.sleep(_TICK_SECONDS)


def _watch(loop: asyncio.AbstractEventLoop, seconds: float, over: threading.Event) -> None:
    turned, missed = threading.Event(), 0
    turned.set()
    while not over.wait(_TICK_SECONDS):
        if turned.is_set():
            missed = 0
            turned.clear()
            try:
                loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop has ended
                return
        else:
            # Counted in this thread, which is suspended too while the process is stopped.
            missed += 1
            if missed * _TICK_SECONDS >= seconds:
                frames = sys._current_frames()  # noqa: SLF001 (the documented way to see another thread's stack)
                stack = "".join(traceback.format_stack(frames.get(threading.main_thread().ident or 0)))
                logger.critical(
                    "the event loop was blocked for {seconds:g} s; this process ends so that other workers take its "
                    "jobs. Stack:\n{stack}",
                    seconds=seconds,
                    stack=stack,
                )
                # Not sys.exit: it would wait for the loop that is blocked.
                os._exit(STUCK)
