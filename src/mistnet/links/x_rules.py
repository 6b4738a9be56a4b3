"""X's own rules for what is a link, as twitter-text-parser has them.

The package loads its emoji tables on import, by way of `pkg_resources`, which a Python without setuptools lacks; they
are not needed here and take longer to load than all else. So only its URL module is imported, on first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

_PACKAGE: Final = "twitter_text"


def urls_by_x(text: str) -> Sequence[tuple[int, int]]:
    """Where each URL begins and ends."""
    return [(told["indices"][0], told["indices"][1]) for told in _extractor()(text)]


@cache
def _extractor() -> Callable[[str], Sequence[dict[str, Any]]]:
    whole = sys.modules.get(_PACKAGE)
    if whole is None and (spec := find_spec(_PACKAGE)):
        sys.modules[_PACKAGE] = module_from_spec(spec)
    try:
        extract: Callable[[str], Sequence[dict[str, Any]]]
        extract = import_module(f"{_PACKAGE}.extract_urls").extract_urls_with_indices
    finally:
        if whole is None:
            sys.modules.pop(_PACKAGE, None)
    return extract
