"""A database with something on every page: long and hostile words, a deep thread, a gap, a run, a segment, shops."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy import insert

from mistnet.app import App
from mistnet.governor.model import X_SOURCE
from mistnet.graph.tables import segment_members
from mistnet.operations.runs.model import RunId
from mistnet.operations.runs.store import RunService
from mistnet.operations.tables import alerts
from mistnet.prices.model import ItemId
from mistnet.queue.model import JobId
from mistnet.social.accounts import AccountTracked
from mistnet.social.coverage import moment_of
from mistnet.social.jobs import args
from mistnet.social.model import Post, PostId, UserId, X
from tests.browser.stocked import Stocked, stock
from tests.browser.valued import value
from tests.graphs import follow, follow_event, segment, synced, turn
from tests.harvests import change, end_badly, id_at, rows, tell, user

ANN: Final = UserId(1_234_567_890_123_456_789)
HOSTILE: Final = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
LONG: Final = "extraordinarily" * 40
DEEP: Final = 40
CROWD: Final = 60


class Furnished:
    """What was put where."""

    def __init__(
        self, dead: JobId, run: RunId, thread: PostId, segment: int, posts: int, shops: Stocked, item: ItemId
    ) -> None:
        self.dead, self.run, self.thread = dead, run, thread
        self.segment, self.posts, self.shops, self.item = segment, posts, shops, item

    @property
    def paths(self) -> Sequence[str]:
        return (
            "/",
            "/?span=month",
            "/accounts",
            f"/accounts/{ANN}",
            f"/people/x/{ANN}/products",
            f"/conversations/{self.thread}",
            "/segments",
            f"/segments/{self.segment}",
            f"/segments/{self.posts}",
            "/feeds",
            "/links",
            "/links?lane=shopee&q=shopee",
            f"/links/{self.shops.link}",
            f"/links/{self.shops.short}",
            "/products",
            f"/products/{self.shops.product}",
            f"/products/{self.shops.gone}",
            f"/products/{self.shops.plain}",
            "/items",
            "/items?q=extra&state=active",
            f"/items/{self.item}",
            "/lanes",
            "/lanes?lane=shopee",
            "/jobs",
            "/jobs?state=gaps",
            f"/jobs/{self.dead}",
            "/sources",
            "/monitoring",
            "/runs",
            f"/runs/{self.run}",
            "/search",
            "/search?q=extraordin*",
            "/login",
            "/spend",
            "/alerts",
            "/watches",
            "/sources?source=x",
        )


async def furnish(app: App) -> Furnished:
    now = app.database.clock.now()
    told = {"name": HOSTILE, "bio": f"{HOSTILE} {LONG} https://example.com/{LONG}", "location": LONG}
    await tell(
        app,
        user(ANN, "before_that", name="Ann", posts_count=1_000),
        AccountTracked(platform=X, user_id=ANN),
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
    await app.sources.store.pause(X_SOURCE, f"{HOSTILE} {LONG}", now=now)
    run = await RunService(app.database, app.job_writer).start(["ann_of_the_net1", "bea"], 10, asked_by=LONG, now=now)
    await change(app, "UPDATE run_accounts SET reason = :reason", reason=f"{HOSTILE} {LONG}")
    await _alert(app, f"{HOSTILE} {LONG}")
    own, posts = await _segment(app), await _posts_segment(app, thread[:3])
    shops = await stock(app, thread[:25], hostile=HOSTILE, long=LONG)
    item = await value(app, title=f"{HOSTILE} {LONG}", hostile=f"{HOSTILE} {LONG}")
    return Furnished(JobId(dead), run.id, thread[0], own, posts, shops, item)


async def _segment(app: App) -> int:
    """Of Ann and some people around her, worked out three times; one of them came and went."""
    now, database = app.database.clock.now(), app.database
    crowd = [UserId(each) for each in range(900, 900 + CROWD)]
    told = [user(each, f"crowd_{each}", name=HOSTILE if each % 5 else LONG) for each in crowd]
    await tell(app, *told)
    ring = [(one, other) for one, other in zip(crowd, [*crowd[1:], crowd[0]], strict=True)]
    await follow(database, *ring, *((each, ANN) for each in crowd), *((ANN, each) for each in crowd[:5]))
    rule, begun = {"kind": "followers", "subject": str(ANN)}, now - timedelta(days=3)
    own = await segment(database, f"segment-{'x' * 56}", [ANN, *crowd[:-1]], rule=rule, at=begun)
    days = [now - timedelta(days=each) for each in (2, 1)]
    await turn(database, own, entered=[crowd[-1]], left=[crowd[1]], members=CROWD, at=days[0])
    await turn(database, own, entered=[crowd[1]], left=[], members=CROWD + 1, at=days[1])
    for each, cause in ((crowd[0], "suspended"), (crowd[1], "vanished"), (crowd[2], "unfollowed")):
        await follow_event(database, each, ANN, "followed", "seen", at=days[0])
        await follow_event(database, each, ANN, "unfollowed", cause, at=days[1])
    await follow_event(database, ANN, crowd[3], "followed", "pushed", at=days[1])
    for side, counts in (("followers", (1_000, 1_020)), ("followings", (40, 38))):
        await synced(database, ANN, side, dict(zip(days, counts, strict=True)))
    return own


async def _posts_segment(app: App, ids: Sequence[PostId]) -> int:
    own = await segment(app.database, "posts", what="posts", rule={"kind": "posts", "query": HOSTILE})
    row = {"segment_id": own, "platform": "x", "since": app.database.clock.now()}
    async with app.database.transaction() as connection:
        await connection.execute(insert(segment_members), [{**row, "post_id": each} for each in ids])
    return own


def _thread(ids: Sequence[PostId]) -> list[Post]:
    """Each answers the one before, one of them a post that is not stored."""
    return [
        Post(
            platform=X,
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
    async with app.database.transaction() as connection:
        await connection.execute(insert(alerts), {**row, "opened_at": now, "last_seen_at": now})
