"""Threads of a service share one heap, so that its memory does not fill with holes."""

import os
import subprocess
import sys

THREADS = """
import ctypes, sys, threading
from mistnet.cli.processes import share_one_heap
if sys.argv[1] == "shared":
    share_one_heap()
kept, barrier = [], threading.Barrier(8)
def allocate():
    kept.append(bytearray(4_000))
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL(None).malloc_stats()
"""


def count_heaps(how: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", THREADS, how],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.count("Arena ")


def test_threads_share_one_heap_unless_the_operator_chose_otherwise() -> None:
    assert count_heaps("as it is") > 4
    assert count_heaps("shared") == 1
    assert count_heaps("shared", MALLOC_ARENA_MAX="3") == 3
