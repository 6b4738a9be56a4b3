"""Keeps the memory of a long-running process together: all its threads share one heap."""

from __future__ import annotations

import ctypes
import os
from typing import Final

_M_ARENA_MAX: Final = -8
_SET_BY_OPERATOR: Final = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def share_one_heap() -> None:
    """Call it before threads start. It does nothing where the C library is not glibc, or an operator chose otherwise.

    glibc gives threads heaps of their own. Each SQLite connection has a thread, and what one thread frees no other can
    use: the heaps filled with holes by megabytes an hour, though the process held no more than before. Python runs one
    thread at a time, so that sharing costs next to nothing.
    """
    if any(name in os.environ for name in _SET_BY_OPERATOR):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
