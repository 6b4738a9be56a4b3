"""Write docs/codebook.md from the declarations of the tables, or with --check say whether it is stale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from mistnet.data.export import table_reference
from mistnet.data.model import TableName

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "codebook.md"
OPENING: Final = """# Codebook

Reference: every table and column that `mistnet export` writes and `mistnet.open` reads. [Analyse](analyse.md) has
examples. How each type looks in each format is on [Search and export](search-and-export.md#formats). The database's own
tables, which have more columns, are on [Tables](tables.md). This page is written by `scripts/generate_codebook.py` from
`src/mistnet/data/records.py`.

"""


def main(arguments: list[str]) -> int:
    new = page()
    if arguments == ["--check"]:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != new
        if stale:
            print(f"{PAGE} is stale; run scripts/generate_codebook.py", file=sys.stderr)
        return int(stale)
    PAGE.write_text(new, encoding="utf-8")
    return 0


def page() -> str:
    return OPENING + table_reference(list(TableName)) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
