"""How many examples a search of the tests tries: few and always the same, or as many as the environment asks for."""

import os

from hypothesis import HealthCheck, settings

VARIABLE = "MISTNET_TEST_EXAMPLES"
USUAL = 50


def count_examples(usual: int = USUAL) -> int:
    """The usual number, unless a long search was asked for."""
    return int(os.environ.get(VARIABLE) or usual)


def load_search_profile() -> None:
    """Without deadlines: how long an example takes says more about the machine than about the program."""
    settings.register_profile(
        "mistnet",
        max_examples=count_examples(),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=not os.environ.get(VARIABLE),
    )
    settings.load_profile("mistnet")
