"""A database with something on every page: long and hostile words, a deep thread, a gap, a run, an alert."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy import insert

from mistnet.app import App
from mistnet.domain.accounts import TrackedAccount
from mistnet.domain.coverage import moment_of
from mistnet.domain.jobs import JobId
from mistnet.domain.runs import RunId
from mistnet.domain.social import Platform, Post, PostId, UserId
from mistnet.domain.sources import X_SOURCE
from mistnet.jobs import args
from mistnet.store.runs import RunDesk
from mistnet.store.tables import alerts
from tests.harvests import change, end_badly, id_at, rows, tell, user

ANN: Final = UserId(1_234_567_890_123_456_789)
HOSTILE: Final = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
LONG: Final = "extraordinarily" * 40
DEEP: Final = 40


class Furnished:
    """What was put where."""

    def __init__(self, dead: JobId, run: RunId, thread: PostId) -> None:
        self.dead, self.run, self.thread = dead, run, thread

    @property
    def paths(self) -> Sequence[str]:
        return (
            "/",
            "/?span=month",
            "/accounts",
            f"/accounts/{ANN}",
            f"/conversations/{self.thread}",
            "/jobs",
            "/jobs?state=gaps",
            f"/jobs/{self.dead}",
            "/sources",
            "/runs",
            f"/runs/{self.run}",
            "/search",
            "/search?q=extraordin*",
            "/login",
        )


async def furnish(app: App) -> Furnished:
    now = app.database.clock.now()
    told = {"name": HOSTILE, "bio": f"{HOSTILE} {LONG} https://example.com/{LONG}", "location": LONG}
    await tell(
        app,
        user(ANN, "before_that", name="Ann", posts_count=1_000),
        TrackedAccount(platform=Platform.X, user_id=ANN),
    )
    thread = [id_at(now - timedelta(days=2), place) for place in range(DEEP + 1)]
    await tell(app, user(ANN, "ann_of_the_net1", website="javascript:document.title=1", **told), *_thread(thread))
    await change(
        app,
        "UPDATE accounts SET oldest_post_id = :oldest, newest_post_id = :newest",
        oldest=thread[0],
        newest=thread[-1],
    )
    await end_badly(app, args.backfill(ANN))
    await change(app, "UPDATE jobs SET last_error = :error", error=f"{HOSTILE} {LONG}")
    ((dead,),) = await rows(app, "SELECT id FROM jobs WHERE kind = 'backfill'")
    await app.harvest.book.pause(X_SOURCE, f"{HOSTILE} {LONG}", now=now)
    run = await RunDesk(app.database, app.job_writer).start(["ann_of_the_net1", "bea"], 10, asked_by=LONG, now=now)
    await change(app, "UPDATE run_accounts SET reason = :reason", reason=f"{HOSTILE} {LONG}")
    await _alert(app, f"{HOSTILE} {LONG}")
    return Furnished(JobId(dead), run.id, thread[0])


def _thread(ids: Sequence[PostId]) -> list[Post]:
    """Each answers the one before, one of them a post that nobody has."""
    return [
        Post(
            platform=Platform.X,
            id=each,
            author_id=ANN,
            text=f"{HOSTILE} {LONG} https://example.com/<b>{place}</b> javascript:alert(1)",
            url="javascript:document.title=1",
            created_at=moment_of(each),
            conversation_id=ids[0],
            in_reply_to_id=None if place == 0 else PostId(ids[0] - 7 if place == DEEP else ids[place - 1]),
            raw=b"{}",
        )
        for place, each in enumerate(ids)
    ]


async def _alert(app: App, message: str) -> None:
    now = app.database.clock.now()
    row = {"rule": "source_paused", "subject": "x", "severity": "critical", "message": message}
    async with app.database.write() as connection:
        await connection.execute(insert(alerts), {**row, "opened_at": now, "last_seen_at": now})
