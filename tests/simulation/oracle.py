"""Runs one seed and compares what is in the database with what must be."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from sqlalchemy import text

from mistnet.kit.database import Database
from mistnet.queue.store.enqueue import JobWriter
from mistnet.queue.store.upkeep import StoreUpkeep
from tests.simulation.virtual import run_virtually
from tests.simulation.world import (
    KILLERS,
    LAST_ATTEMPT,
    Chaos,
    Fleet,
    expected_notes,
    first_jobs,
    kinds_of,
    open_database,
)

GUARDS = {
    "sqlite": [
        """CREATE TRIGGER watch AFTER UPDATE ON jobs
        WHEN OLD.state = 'running' AND NEW.state = 'running' AND NEW.fence <> OLD.fence
            AND OLD.lease_until > NEW.started_at
        BEGIN INSERT INTO effects (job_id, note) VALUES (NEW.id, 'STOLEN from ' || OLD.worker); END""",
        """CREATE TRIGGER fences AFTER UPDATE ON jobs WHEN NEW.fence < OLD.fence
        BEGIN INSERT INTO effects (job_id, note) VALUES (NEW.id, 'FENCE fell'); END""",
    ],
    "postgresql": [
        """CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF OLD.state = 'running' AND NEW.state = 'running' AND NEW.fence <> OLD.fence
                AND OLD.lease_until > NEW.started_at THEN
                INSERT INTO effects (job_id, note) VALUES (NEW.id, 'STOLEN from ' || OLD.worker);
            END IF;
            IF NEW.fence < OLD.fence THEN
                INSERT INTO effects (job_id, note) VALUES (NEW.id, 'FENCE fell');
            END IF;
            RETURN NEW; END $$""",
        "CREATE TRIGGER watch AFTER UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION watch()",
    ],
}
"""No live lease is ever taken from its holder; the database itself tells if one is."""


@dataclass(frozen=True)
class Result:
    faults: list[str]
    trace: list[str]
    crashes: int


def simulate(url: str, seed: int, *, deadline: float = 2 * 3600) -> Result:
    """One whole life of a fleet, in so many virtual seconds at most. The same seed gives the same life."""
    return run_virtually(_simulate(url, seed, deadline))


def endure(url: str, seed: int, *, deadline: float = 2 * 3600) -> Result:
    """The life of a fleet whose database fails three times, for longer than a lease, and whose machines are sound."""
    return run_virtually(_endure(url, seed, deadline))


async def _endure(url: str, seed: int, deadline: float) -> Result:
    database = open_database(url)
    chance = random.Random(f"spells {seed}")
    spells = [(start, start + chance.uniform(5, 150)) for start in (chance.uniform(1, 20), 200.0, 400.0)]
    fleet = Fleet(url, Chaos(seed, crash=0, freeze=0, spells=spells))
    sound = [job for job in first_jobs() if job.kind != "killer"]
    try:
        async with database.transaction() as connection:
            await JobWriter(kinds_of(None).rules).write(connection, sound, database.clock.now())
        upkeep = StoreUpkeep(database)

        async def done() -> bool:
            return not await upkeep.work_left(list(kinds_of(None)), ["x"], now=database.clock.now())

        await fleet.run(until=done, deadline=deadline)
        async with database.read() as connection:
            notes = (await connection.execute(text("SELECT note FROM effects ORDER BY note"))).scalars().all()
            blamed = (await connection.execute(text("SELECT error FROM job_errors"))).scalars().all()
    finally:
        await database.close()
    faults = [] if sorted(notes) == expected_notes() else [f"effects are {Counter(notes) - Counter(expected_notes())}"]
    faults += [f"blamed: {error}" for error in blamed if "note 3 is bad" not in error and error != "not yet"]
    faults += [] if len(fleet.machines) == fleet.size else ["a worker ended"]
    refusals = sum("refused by the database" in line for line in fleet.trace)
    return Result(faults=faults, trace=fleet.trace, crashes=refusals)


async def _simulate(url: str, seed: int, deadline: float) -> Result:
    database = open_database(url)
    chaos = Chaos(seed)
    fleet = Fleet(url, chaos)
    faults: list[str] = []
    try:
        async with database.transaction() as connection:
            for guard in GUARDS[database.dialect]:
                await connection.execute(text(guard.replace(":", "\\:")))
            await JobWriter(kinds_of(None).rules).write(connection, first_jobs(), database.clock.now())
        upkeep = StoreUpkeep(database)

        async def done() -> bool:
            return not await upkeep.work_left(list(kinds_of(None)), ["x"], now=database.clock.now())

        try:
            await fleet.run(until=done, deadline=deadline)
        except AssertionError as error:
            faults.append(str(error))
        faults += await _compare(database)
    finally:
        await database.close()
    crashes = sum("CRASHES" in line for line in fleet.trace)
    return Result(faults, fleet.trace, crashes)


async def _compare(database: Database) -> list[str]:
    async with database.read() as connection:
        notes = Counter((await connection.execute(text("SELECT note FROM effects"))).scalars())
        left = (await connection.execute(text("SELECT kind, key, state, attempts FROM jobs"))).all()
        ended = Counter((await connection.execute(text("SELECT kind || ' ' || key FROM job_history"))).scalars())
        miscounted = (await connection.execute(text(_MISCOUNTED))).all()
    expected = Counter(expected_notes())
    faults = [f"effect {note!r} is there {count} times" for note, count in notes.items() if count != expected[note]]
    faults += [f"effect {note!r} is missing" for note in expected if note not in notes]
    faults += [f"{job} succeeded {count} times" for job, count in ended.items() if count != 1]
    dead = sorted((row.kind, row.key, row.state, row.attempts) for row in left)
    wanted = sorted(("killer", key, "dead", LAST_ATTEMPT) for key in KILLERS)
    if dead != wanted:
        faults.append(f"jobs left: {dead}, expected: {wanted}")
    faults += [f"{row.kind} {row.key} counts {row.attempts} attempts, {row.errors} are on record" for row in miscounted]
    return faults


# A walk's count starts again with each step, so only the other kinds can be compared with their record.
_MISCOUNTED = """
    SELECT j.kind, j.key, j.attempts, count(e.job_id) AS errors
    FROM (
        SELECT id, kind, key, attempts FROM jobs UNION ALL SELECT id, kind, key, attempts FROM job_history
    ) AS j
    LEFT JOIN job_errors e ON e.job_id = j.id
    WHERE j.kind <> 'walk'
    GROUP BY j.id, j.kind, j.key, j.attempts
    HAVING j.attempts <> count(e.job_id)
"""
