"""A loop that stands still ends its process, and says where it stands."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mistnet.queue.upkeep import STUCK
from tests.warm import SOURCES

PROGRAM = """
import asyncio, re, sys, time
from mistnet.queue.upkeep import watched

def waits():
    time.sleep(60)

def computes():
    re.match(r"(a*)*b", "a" * 40)  # the interpreter is held all the while

async def works():
    await asyncio.sleep(3.5)

async def main(what):
    with watched(2):
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        if what == "works":
            await works()
        else:
            {"waits": waits, "computes": computes}[what]()

asyncio.run(main(sys.argv[1]))
print("done")
"""


def started(what: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", PROGRAM, what], stdout=pipe, stderr=pipe, text=True, env=environment)


@pytest.mark.parametrize(("what", "code"), [("waits", STUCK), ("computes", -signal.SIGPROF)])
def test_a_loop_that_stands_still_ends_its_process_and_says_where(what: str, code: int) -> None:
    with started(what) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "ready\n")
    assert what in err


def test_a_loop_that_turns_is_left_alone_even_if_its_process_is_stopped_for_a_while() -> None:
    with started("works") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "done\n", "")
