"""Where `mistnet` and `python -m mistnet` start. The version is printed without loading anything else."""

import gc
import sys
from collections.abc import Sequence

from mistnet import __version__


def main() -> None:
    # Loading modules makes no garbage, and searching for it took a fifth of the start.
    # `mistnet.cli.main` enables the collector again once the command is loaded.
    gc.disable()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        if list(arguments) == ["--version"]:
            sys.stdout.write(f"mistnet {__version__}\n")
            sys.stdout.flush()
            return 0
        from mistnet.cli import main as command_line  # noqa: PLC0415 (Typer takes longer to load than the version)

        return command_line.run(arguments)
    except OSError as error:
        from mistnet.cli.output import abandon_output  # noqa: PLC0415 (as above)

        code = abandon_output(error)
        if code is None:
            raise
        return code


if __name__ == "__main__":
    main()
