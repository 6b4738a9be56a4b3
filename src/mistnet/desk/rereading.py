"""Reads payloads again that were set aside, with today's decoder."""

from typing import Final

import msgspec

from mistnet.app import App
from mistnet.domain.social import Detail, Platform
from mistnet.store.quarantine import KeptPayload, Quarantine, Reading, Reparsed
from mistnet.store.schema import require_current
from mistnet.upstream.threads import decode as threads
from mistnet.upstream.x.decode import gather_posts, gather_users

WEBHOOK_ENDPOINT: Final = "webhook"
"""Where pushed posts are said to come from."""

POST_ENDPOINTS: Final = ("tweet/advanced_search", "tweets", "user/last_tweets", "tweet/replies", WEBHOOK_ENDPOINT)
USER_ENDPOINTS: Final = {
    "user/batch_info_by_ids": Detail.PROFILE,
    "user/followers": Detail.LISTED,
    "user/followings": Detail.LISTED,
}


async def reparse_all(app: App) -> Reparsed:
    """Reads what was set aside with today's decoder, and writes what can be read now."""
    await require_current(app.database)
    await app.database.correct_clock()
    return await Quarantine(app.database).reparse(reread, app.writers, now=app.database.clock.now())


def reread(kept: KeptPayload) -> Reading:
    """One payload by the decoder of the endpoint it came from. All of it can be read, or none is taken."""
    payload = msgspec.Raw(kept.payload)
    try:
        if kept.platform is Platform.THREADS:
            gathered, *_ = threads.gather_posts([payload], kept.endpoint)
        elif kept.endpoint in POST_ENDPOINTS:
            gathered, _ = gather_posts([payload], kept.endpoint)
        elif kept.endpoint in USER_ENDPOINTS:
            gathered = gather_users([payload], kept.endpoint, USER_ENDPOINTS[kept.endpoint])
        else:
            return Reading(problem=f"nothing here reads what comes from {kept.endpoint}")
    except RecursionError:
        return Reading(problem="it is nested too deeply")
    if gathered.unreadable:
        return Reading(problem=gathered.unreadable[0].problem)
    return Reading(writes=gathered.writes)
