"""How a fault is told: one line on stderr and an exit code."""

import sys
from collections.abc import Sequence
from typing import Final

from mistnet.cli.printable import printable
from mistnet.domain.redaction import redact

BUG: Final = 70
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


def complain(problem: str, secrets: Sequence[str] = ()) -> None:
    sys.stderr.write(f"mistnet: error: {printable(redact(problem, secrets), one_line=True)}\n")
