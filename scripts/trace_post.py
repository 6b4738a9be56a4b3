"""Trace the way of a post: which functions run from the answer of X to the stored page, and then to the dashboard.

Collects one page of an account of the simulated world on SQLite and requests `GET /`. Prints the modules with their
functions; `--count` prints the numbers alone.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from fastapi import FastAPI
from loguru import logger

from mistnet.app import App
from mistnet.cli.demo_world import DemoWorld, WorldTransport
from mistnet.kit.migrate import ready
from mistnet.kit.transport import HttpAnswer, HttpRequest
from mistnet.queue.model import Lane, Settlement
from mistnet.settings import Settings
from mistnet.social.model import X
from mistnet.social.store.tracking import NewSuggestion
from mistnet.social.tracking import track_handles
from mistnet.web.application import make_service
from mistnet.web.pages.dashboard import Dashboard

_SOURCE: Final = str(Path(__file__).resolve().parents[1] / "src" / "mistnet")
_OUTSIDE: Final = ("sim/", "cli/")  # the world that answers, and what starts it


class Trace:
    """The functions of mistnet that were called, by the file they are in. Templates are files too."""

    def __init__(self, *, of_jobs: bool = False) -> None:
        self.found: defaultdict[str, set[str]] = defaultdict(set)
        self._of_jobs = of_jobs

    @contextmanager
    def recording(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self._of_jobs and not _is_of_a_job():
            return
        if event == "call" and code.co_filename.startswith(_SOURCE) and code.co_name != "<module>":
            file = code.co_filename[len(_SOURCE) + 1 :]
            if not file.startswith(_OUTSIDE):
                self.found[file].add(code.co_qualname)

    @property
    def summary(self) -> str:
        return f"{len(self.found)} modules, {sum(map(len, self.found.values()))} functions"

    def print(self, title: str) -> None:
        print(f"\n{title}: {self.summary}")
        for file, names in sorted(self.found.items()):
            print(f"  {file}: {', '.join(sorted(names))}")


def _is_of_a_job() -> bool:
    """Whether this task runs or settles a job. The others claim the next jobs and do the upkeep of the worker."""
    task = asyncio.current_task()
    return task is not None and (task.get_name().startswith("job ") or task.get_name() == "settler")


class SecondPage:
    """Records from the second page of posts that X sends until its job is settled: caches are filled then."""

    def __init__(self, transport: WorldTransport, trace: Trace) -> None:
        self._transport = transport
        self._trace = trace
        self._pages = 0

    async def send(self, request: HttpRequest) -> HttpAnswer:
        answer = await self._transport.send(request)
        self._pages += request.path.endswith("advanced_search")
        if self._pages == 2:
            self._trace.start()
        return answer


async def collect(app: App, handle: str, trace: Trace) -> None:
    await track_handles(app, [NewSuggestion(handle=handle)])
    settled = app.progress.settled

    over = asyncio.Event()

    def stop_after(settlement: Settlement) -> None:
        settled(settlement)
        if trace.found:
            trace.stop()
            over.set()

    app.progress.settled = stop_after  # type: ignore[method-assign]  # nothing comes after it
    async with app.worker(concurrency=1, lanes=[Lane(X)]) as worker:
        running = asyncio.create_task(worker.run())
        await over.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def request(service: FastAPI, path: str) -> None:
    """Ask the web application in this process, as a browser on this machine would."""
    headers = [(b"host", b"127.0.0.1:80"), (b"accept", b"text/html")]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": b"/",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await service(scope, receive, send)
    if sent[0]["status"] != 200:
        raise AssertionError(f"GET {path} answered {sent[0]['status']}")


async def main() -> None:
    logger.remove()
    stored, shown = Trace(of_jobs=True), Trace()
    world = DemoWorld(seed=7, size="tiny", faults="none", latency_seconds=(0.0, 0.0))
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate({"database_url": f"sqlite:///{folder}/traced.db", "x_api_key": [world.key]})
        transports = {"x": SecondPage(world.transport, stored)}
        app = App(settings, transports=transports)
        await ready(app.database, create=True)
        await collect(app, world.open_handles[0], stored)
        service = make_service(app)
        await request(service, "/")  # the first request compiles templates and SQL
        service.state.dashboard = Dashboard(app)  # without cached counts
        with shown.recording():
            await request(service, "/")
        await service.state.dashboard.close()
        await app.database.close()
    if "social/store/posts.py" not in stored.found:
        raise AssertionError("the trace ended before the post was stored: has the task that settles another name?")
    if "--count" not in sys.argv:
        stored.print("From the answer of X to the stored page")
        shown.print("From the database to the dashboard")
    print(f"stored: {stored.summary}; shown: {shown.summary}")


if __name__ == "__main__":
    asyncio.run(main())
