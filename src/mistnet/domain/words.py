"""Words for text search, also where a script writes none: each such character stands for itself."""

from __future__ import annotations

import re
from typing import Final

# Kana, Han, Hangul, Thai, Lao, Khmer, Burmese: written without blanks, or searched by part of a word.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f]+"
)


def search_text(text: str) -> str | None:
    """The text with blanks around such characters; None where it has none and can be searched as it is."""
    if text.isascii() or not _UNSPACED.search(text):
        return None
    return " ".join(_UNSPACED.sub(_separated, text).split())


def _separated(run: re.Match[str]) -> str:
    return f" {' '.join(run[0])} "
