"""Migrates a database in a process of its own, which kills itself with SIGKILL before a given statement.

`python -m tests.interrupted URL NUMBER` ends before statement NUMBER, or before the commit in its place. With
number 0 it migrates and prints how many statements that took.
"""

import asyncio
import os
import signal
import sys

from sqlalchemy import event

from mistnet.kit.database import Database
from mistnet.kit.migrate import migrate


class Interruption:
    """Counts the statements of an engine and ends this process where it is told to."""

    def __init__(self, before: int) -> None:
        self._before = before
        self.count = 0

    def on_statement(self, *_: object) -> None:
        self.count += 1
        if self.count == self._before:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_commit(self, _connection: object) -> None:
        if self.count + 1 == self._before:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, before: int) -> None:
    database, interruption = Database(url), Interruption(before)
    event.listen(database.engine.sync_engine, "before_cursor_execute", interruption.on_statement)
    event.listen(database.engine.sync_engine, "commit", interruption.on_commit)
    try:
        await migrate(database)
    finally:
        await database.close()
    sys.stdout.write(f"{interruption.count}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
