"""Which seeds run: a few fixed ones and a few that change with the commit, or those that the environment asks for."""

import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROTATIONS = 1000
"""The rotating seeds of a commit are one of so many blocks that follow the fixed ones."""
TURNS = 3


def rotation() -> int:
    """Which block of seeds this commit runs, beside the fixed ones: many commits together run many seeds."""
    name = os.environ.get("MISTNET_TEST_ROTATION") or _commit()
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) % ROTATIONS


def _commit() -> str:
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "no commit"
    return asked.stdout.strip() if asked.returncode == 0 else "no commit"


def chunks(core: int, rotating: int, size: int, *, turn: int | None = None) -> list[range]:
    """The seeds of one test: `core` fixed ones and `rotating` ones, or what the environment asks for instead.

    A test with a turn runs its rotating seeds for one commit in three.
    """
    if one := os.environ.get("MISTNET_TEST_SEED"):
        return [range(int(one), int(one) + 1)]
    if asked := os.environ.get("MISTNET_TEST_SEEDS"):
        first, _, stop = asked.partition(":")
        return _cut(range(int(first), int(stop)), size)
    if turn is not None and turn != ROTATION % TURNS:
        rotating = 0
    first_rotating = core + ROTATION * rotating
    return [*_cut(range(core), size), *_cut(range(first_rotating, first_rotating + rotating), size)]


def _cut(seeds: range, size: int) -> list[range]:
    return [seeds[place : place + size] for place in range(0, len(seeds), size)]


def is_fixed(seeds: range) -> bool:
    """Whether these seeds run every time, so that it is known how much goes wrong in them."""
    return seeds.start == 0 and not os.environ.get("MISTNET_TEST_SEED")


def named(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def replay(seed: int) -> str:
    """The command that runs this seed of the present test alone."""
    node = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    path, _, test = node.partition("::")
    name, _, parameters = test.rstrip("]").partition("[")
    wanted = " and ".join([name, *(each for each in parameters.split("-") if each.isalpha())])
    return f"replay: MISTNET_TEST_SEED={seed} make test ARGS='{path} -k \"{wanted}\"'"


ROTATION = rotation()
