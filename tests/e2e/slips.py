"""Wrong command lines: how each must be reported, in one line with an exit code that is not 0."""

from collections.abc import Iterable

from tests.commands import Ran
from tests.e2e.conftest import CommandLine


def is_one_line(done: Ran, *said: str, code: int = 2) -> bool:
    """Whether a command failed with this exit code and one line that says all of this."""
    is_single = done.err.startswith("mistnet: error: ") and done.err.count("\n") == 1
    return done.code == code and is_single and all(words in done.err for words in said)


def list_misreported(command: CommandLine, slips: Iterable[tuple[tuple[str, ...], str]]) -> list[tuple[object, Ran]]:
    """The command lines that did not end with exit code 2, no output and one line that says what is expected."""
    ran = [(arguments, said, command(*arguments)) for arguments, said in slips]
    return [(arguments, done) for arguments, said, done in ran if done.out or not is_one_line(done, said)]
