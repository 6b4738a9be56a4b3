"""The process that reads pages: tasks on its standard input, answers on its standard output.

It ends when its worker does. A page that takes too long ends it too: the kernel sends SIGPROF when the CPU time is used
up, which works even if a parser never returns to Python.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from selectolax.lexbor import SelectolaxError

from mistnet.shops.catalog import CATALOG, ShopCatalog
from mistnet.shops.model import PageUnreadable
from mistnet.sources.reading import HEAD, Answered, GaveUp, ReadingLimits, ReadPage, Reply, Task, frame_message

_MEGABYTE: Final = 1_000_000
_READY: Final = b"<html><head><title>a</title></head><body><h1>a</h1><p>$1</p></body></html>"
_task: Final = msgspec.msgpack.Decoder(Task).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def main() -> None:
    limits, shops = msgspec.json.decode(sys.argv[1], type=ReadingLimits), CATALOG
    if plugins := sys.argv[2:]:
        from mistnet.shops.plugins import load_catalog  # noqa: PLC0415 (it loads SQLAlchemy, which takes memory)

        shops = load_catalog(plugins)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the worker handles them; this process ends when the worker does
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not be read as an answer
    # Load the parsers before memory is limited, so that only pages count against the limit.
    ReadPage(url="https://example.org/", content_type="text/html", body=_READY).run(shops)
    # The collector need not look again at what is loaded now.
    gc.freeze()
    # Limit the memory beyond what is mapped now. On systems without this limit, only the time is limited.
    mapped = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (mapped + limits.megabytes * _MEGABYTE, hard))
    serve(sys.stdin.buffer, answers, limits, shops)


def serve(asked: BinaryIO, answers: BinaryIO, limits: ReadingLimits, shops: ShopCatalog) -> None:
    while head := asked.read(HEAD):
        task = _task(asked.read(int.from_bytes(head)))
        # CPU time, not elapsed time: on a busy machine a page must not fail because others run.
        signal.setitimer(signal.ITIMER_PROF, limits.seconds)
        reply: Reply
        try:
            reply = Answered(msgspec.Raw(_encode(task.run(shops))))
        except PageUnreadable as error:
            reply = GaveUp(error.reason)
        except (MemoryError, SelectolaxError):  # the parser says only that it cannot go on
            reason = f"reading it takes more than {limits.megabytes} MB of memory (`crawl_read_megabytes`)"
            reply = GaveUp(reason, spent=True)
        except Exception as error:  # noqa: BLE001 (no page may end the process that reads it)
            reply = GaveUp(f"reading it failed: {type(error).__name__}: {error}"[:300], spent=True)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(frame_message(_encode(reply)))
        answers.flush()
        if isinstance(reply, GaveUp) and reply.spent:
            return


if __name__ == "__main__":
    main()
