"""How much memory something takes."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AS_IN_LIFE = (700, 10, 10)
"""How often Python looks for garbage unless it is told otherwise. Tests look for it less often, to save time."""


@contextmanager
def most_memory() -> Iterator[Callable[[], int]]:
    """Tells how many bytes were held at most since the block began."""
    gc.collect()
    usual = gc.get_threshold()
    gc.set_threshold(*AS_IN_LIFE)
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*usual)
