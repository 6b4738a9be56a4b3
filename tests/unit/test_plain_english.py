"""The code and its documentation use the words of their field: no folksy or archaic ones, and no metaphors as names."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AVOIDED = re.compile(
    r"\b(anew|nobody|somebody|whoever|whomever|by and by|is told of|he may|lies about"
    r"|purse|caretaker|harvest|roster|tellings|passage|errand|desk|chore|wishes|circles|standings)s?\b",
    re.IGNORECASE,
)
# Words that pages for users avoid as well: those whose first language is not English stumble over them.
AVOIDED_ON_PAGES = re.compile(
    r"\b(anybody|everybody|becomes of|comes of|tells of|in vain|nought|heeded|to be had|he|his|him|she|her)\b",
    re.IGNORECASE,
)
SAMPLE_TEXT = "src/mistnet/sim/language.py"  # words that simulated people write
KINDS = {".py", ".sql", ".html", ".js", ".css", ".md", ".toml", ".yaml"}
WRITTEN = ("src", "docs", "bench", "scripts", "deploy")


def avoided_words(lines: list[str], avoided: re.Pattern[str] = AVOIDED) -> list[tuple[int, str]]:
    return [(number, found[0]) for number, line in enumerate(lines, 1) for found in avoided.finditer(line)]


def test_no_file_has_a_word_to_avoid() -> None:
    files = [
        *ROOT.glob("*.md"),
        *(path for name in WRITTEN for path in (ROOT / name).rglob("*") if path.suffix in KINDS),
    ]
    assert len(files) > 300
    found = {
        str(path.relative_to(ROOT)): words
        for path in files
        if (words := avoided_words(path.read_text(encoding="utf-8").splitlines()))
    }
    found.pop(SAMPLE_TEXT, None)
    assert found == {}


def test_no_page_has_a_word_to_avoid_on_pages() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert len(pages) > 60
    found = {
        str(path.relative_to(ROOT)): words
        for path in pages
        if (words := avoided_words(path.read_text(encoding="utf-8").splitlines(), AVOIDED_ON_PAGES))
    }
    assert found == {}


def test_a_word_to_avoid_is_found() -> None:
    assert avoided_words(["plain", "Nobody is to use the purse"]) == [(2, "Nobody"), (2, "purse")]
