"""Opens what a command is given to read: a file, or standard input."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mistnet.domain.errors import UnreadableFile

STANDARD_INPUT = "-"


@contextmanager
def lines_of(file: str) -> Iterator[BinaryIO]:
    """The lines of a file, one by one as they come."""
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 (closed below, once it is known to be there)
    except OSError as error:
        raise UnreadableFile(file, error.strerror or str(error)) from None
    with stream:
        yield stream


def bytes_of(file: str) -> bytes:
    """All of a file."""
    try:
        with lines_of(file) as stream:
            return stream.read()
    except OSError as error:
        raise UnreadableFile(file, error.strerror or str(error)) from None
