"""What a machine cannot test: skipped and named loudly at home, a failure in CI."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import pytest

MARK = "not available here: "
ALLOWED_IN_CI = ("corpora:", "soak:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    service: str
    why: str
    tests: int

    def __str__(self) -> str:
        plural = "test" if self.tests == 1 else "tests"
        return f"NOT TESTED on this machine: {self.service} ({self.tests} {plural}): {self.why}"


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


def unavailable(service: str, why: str) -> NoReturn:
    reason = f"{MARK}{service}: {why}"
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def skip_reasons(reports: Iterable[object]) -> list[str]:
    found = []
    for report in reports:
        match getattr(report, "longrepr", None):
            case (_, _, str(reason)):
                found.append(reason.removeprefix("Skipped: "))
            case other:
                found.append(str(other))
    return found


def missing_services(reasons: Iterable[str]) -> list[Missing]:
    counted = Counter(reason.removeprefix(MARK) for reason in reasons if reason.startswith(MARK))
    return [
        Missing(service=service, why=why, tests=tests)
        for (service, _, why), tests in ((text.partition(": "), tests) for text, tests in counted.items())
    ]


def forbidden_in_ci(reasons: Iterable[str]) -> list[str]:
    return [reason for reason in reasons if not reason.startswith(ALLOWED_IN_CI)]
