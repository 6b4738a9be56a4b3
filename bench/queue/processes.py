"""Worker processes of a side, and the few lines parent and worker exchange."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bench.queue.common import Options

PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Worker:
    process: asyncio.subprocess.Process

    async def ready(self) -> None:
        line = await self._line()
        if line.strip() != b"ready":
            raise RuntimeError(f"a worker said {line!r} where it should say that it is ready")

    async def go(self) -> None:
        stdin = self.process.stdin
        if stdin is None:
            raise RuntimeError("a worker was started without a pipe to it")
        stdin.write(b"go\n")
        await stdin.drain()

    async def result(self) -> Any:
        return json.loads(await self._line())

    async def _line(self) -> bytes:
        stdout = self.process.stdout
        if stdout is None:
            raise RuntimeError("a worker was started without a pipe from it")
        return await asyncio.wait_for(stdout.readline(), PATIENCE_S)


@asynccontextmanager
async def workers(module: str, command: str, options: Options) -> AsyncIterator[list[Worker]]:
    """Start `options.processes` workers; none outlives the block."""
    arguments = [command, "--dsn", options.dsn, "--jobs", str(options.jobs), "--batch", str(options.batch)]
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", module, *arguments, "--form", options.form),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        for _ in range(options.processes)
    ]
    try:
        yield [Worker(process) for process in started]
        if any(await asyncio.gather(*(asyncio.wait_for(process.wait(), PATIENCE_S) for process in started))):
            raise RuntimeError("a worker ended badly")
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
                await process.wait()


def say_ready() -> None:
    print("ready", flush=True)


def await_go() -> None:
    """Say that all connections stand, and hold until every other worker has said so."""
    say_ready()
    sys.stdin.readline()


def say(result: object) -> None:
    print(json.dumps(result), flush=True)
