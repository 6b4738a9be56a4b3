"""Error messages of the command line: one line on stderr and an exit code."""

import re
import sys
from collections.abc import Sequence
from typing import Final

from mistnet.kit.text import printable, redact

BUG: Final = 70
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


_LONG_WORD: Final = re.compile(r"\S{401,}")


def complain(problem: str, secrets: Sequence[str] = ()) -> None:
    # A word of thousands of characters, from a typing error or an attack, would hide the message about it.
    problem = _LONG_WORD.sub(lambda found: f"{found[0][:80]}…", problem)
    sys.stderr.write(f"mistnet: error: {printable(redact(problem, secrets), one_line=True)}\n")
