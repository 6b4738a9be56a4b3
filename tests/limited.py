"""Runs `mistnet` in a process whose files cannot grow beyond a limit, as on a disk that is full.

`python -m tests.limited BYTES ARGUMENTS`
"""

import resource
import sys

from mistnet.__main__ import run

if __name__ == "__main__":
    most = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    sys.exit(run(sys.argv[2:]))
