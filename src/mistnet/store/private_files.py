"""Files of collected data that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_OWNER_ONLY: Final = 0o600


def make_private(file: Path) -> None:
    """Create an empty file with mode 0600, whatever the umask is. SQLite gives the files beside it the same mode.

    Raises FileExistsError if there is one: its mode is its owner's choice.
    """
    handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY)
    try:
        os.fchmod(handle, _OWNER_ONLY)  # a strict umask takes the owner's own rights too
    finally:
        os.close(handle)
