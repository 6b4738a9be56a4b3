"""Tries sweeps anew that ended without their result, and begins those that nobody has begun."""

import msgspec

from mistnet.app import App
from mistnet.domain.accounts import AccountState
from mistnet.domain.coverage import Progress, SweepKind
from mistnet.domain.jobs import NewJob
from mistnet.domain.social import PostId
from mistnet.jobs import args
from mistnet.store.coverage import Coverage


async def repaired(app: App, progress: Progress) -> list[str]:
    """Tries an account's gaps anew and begins what nobody has begun; says what was done."""
    name = f"@{progress.handle or progress.user_id}"
    if progress.state is not AccountState.ACTIVE:
        return [f"{name} is {progress.state}: left alone until it can be collected"] if progress.gaps else []
    said: list[str] = []
    kinds = {gap.job_id: gap.kind for gap in progress.gaps}
    if kinds:
        changes = await app.operations.retry(list(kinds), now=app.database.clock.now(), gaps_only=True)
        said += [
            f"{name}: {kinds[each.id]} job {each.id} {'is tried anew' if each.changed else f'stays: {each.why}'}"
            for each in changes
        ]
        sweeps = await Coverage(app.database).sweeps(progress.user_id)
        progress = msgspec.structs.replace(progress, sweeps=sweeps)
    if progress.suspect_since:
        said += await _sweep_again(app, progress, name)
    lacking = _lacking(progress, with_reposts=app.settings.x_reposts)
    if lacking and (await app.enqueue([lacking])).created:
        said.append(f"{name}: a {lacking.kind} sweep is begun")
    return said


async def _sweep_again(app: App, progress: Progress, name: str) -> list[str]:
    """A suspect history is read once more from its newest post to its first."""
    wanted = [args.resweep(progress.user_id)]
    if app.settings.x_reposts:
        wanted.append(args.resweep(progress.user_id, reposts=True))
    created = (await app.enqueue(wanted)).created
    done = "its history is suspect and is swept again" if created else "its history is being swept again already"
    return [f"{name}: {done}"]


def _lacking(progress: Progress, *, with_reposts: bool) -> NewJob | None:
    """The sweep that should be alive and is not."""
    if progress.backfilled_at is None:
        return None if progress.alive(SweepKind.BACKFILL) else args.backfill(progress.user_id)
    if with_reposts and progress.reposts_backfilled_at is None and not progress.alive(SweepKind.REPOSTS):
        return args.reposts(progress.user_id, PostId(0))
    return None
