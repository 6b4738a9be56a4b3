"""Puts price watches together: the pause before a second look, and what is watched without being asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from mistnet.prices.watches.store import Watches
from mistnet.queue.store.enqueue import JobWriter

if TYPE_CHECKING:
    from mistnet.settings import Settings


def watches_of(settings: Settings, job_writer: JobWriter) -> Watches:
    """The same for everybody who writes prices."""
    pause = timedelta(seconds=settings.crawl_second_look_seconds)
    return Watches(job_writer, pause=pause, percent=settings.price_watch_percent)
