"""What all simulations share: databases in memory, and silence."""

import gc
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from tests.databases import Templates


@pytest.fixture(scope="module")
def memory() -> Iterator[Templates]:
    """Databases in memory: what is simulated is the death of processes, not of disks."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="mistnet-sim-", dir=shared if shared.is_dir() else None))
    yield Templates(folder)
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Workers die here by the hundred, with open connections; their last words are of no interest."""
    loggers = [logging.getLogger(name) for name in ("sqlalchemy.pool", "asyncio")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    logger.remove()
    yield
    gc.collect()
    gc.freeze()  # what is left now, such as compiled statements, stays to the end
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)
