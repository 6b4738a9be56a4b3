"""Draws lines on a terminal again and again, and writes only those that have changed: nothing flickers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Final

from rich.console import Console
from rich.text import Text

_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"
_CLEAR_REST_OF_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"
_CLEAR_ALL: Final = "\x1b[2J\x1b[H"


class Canvas:
    """The lines drawn last. The cursor rests below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._size = console.size
        self._drawn: list[str] = []

    @property
    def width(self) -> int:
        """The last column stays free: what is cleared after a full line would begin there."""
        return self._console.size.width - 1

    @property
    def height(self) -> int:
        """Lines there is room for above the cursor's."""
        return self._console.size.height - 1

    def draw(self, lines: Sequence[Text]) -> None:
        written = [self._start()]
        fresh = [self._escaped(line) for line in lines[: self.height]]
        for line, before in zip_longest(fresh, self._drawn[: len(fresh)]):
            written.append("\n" if line == before else f"{line}{_CLEAR_REST_OF_LINE}\n")
        self._drawn = fresh
        self._write("".join([*written, _CLEAR_BELOW]))

    def _start(self) -> str:
        """Back to the first line. What was drawn for another width lies in ruins: then everything is drawn anew."""
        size = self._console.size
        if size != self._size:
            self._size, self._drawn = size, []
            return _CLEAR_ALL
        return f"\r\x1b[{len(self._drawn)}A" if self._drawn else "\r"

    def _escaped(self, line: Text) -> str:
        with self._console.capture() as captured:
            line.truncate(self.width, overflow="ellipsis")
            self._console.print(line, end="", no_wrap=True, highlight=False)
        return captured.get()

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


@contextmanager
def canvas(console: Console) -> Iterator[Canvas]:
    """Without a cursor, and without wrapping: a line that the terminal takes to be wider than we do stays one line."""
    console.show_cursor(False)
    console.file.write(_WRAP_OFF)
    try:
        yield Canvas(console)
    finally:
        console.file.write(f"\r{_CLEAR_BELOW}{_WRAP_ON}")
        console.show_cursor(True)
        console.file.flush()
