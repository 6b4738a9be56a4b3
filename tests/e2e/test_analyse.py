"""The Python of the page on analysis runs as it stands there, and its answers agree with the database."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "analyse.md"
BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING: Final = re.compile(r"^### (.*)$", re.MULTILINE)
HANDLE: Final = "OlgaNews2"  # an account of every simulated world


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the demo collected: a whole simulated world."""
    folder = tmp_path_factory.mktemp("birds")
    command = [str(Path(sys.executable).parent / "mistnet"), "demo", "--size", "tiny", "--no-browser", "--keep", "box"]
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    subprocess.run(
        command, cwd=folder, env={**inherited, "HOME": str(folder)}, check=True, capture_output=True, timeout=300
    )
    return folder / "box" / "demo.db"


@pytest.fixture(scope="module")
def answers(collected: Path) -> list[dict[str, Any]]:
    """What each block of the page leaves behind, in their order. Later blocks use what earlier ones define."""
    page = PAGE.read_text(encoding="utf-8")
    here: dict[str, Any] = {}
    found = []
    for block in BLOCK.findall(page):
        runs = block.replace('"birds/"', repr(str(collected))).replace('"ann"', repr(HANDLE))
        exec(compile(runs, str(PAGE), "exec"), here)
        found.append({name: value for name, value in here.items() if re.search(rf"^{name} = ", block, re.MULTILINE)})
    here["data"].close()
    return found


def only(answers: list[dict[str, Any]], name: str) -> list[Any]:
    return [answer[name] for answer in answers if name in answer]


def value(database: Path, sql: str) -> Any:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchone()[0]


def test_the_page_answers_ten_questions() -> None:
    page = PAGE.read_text(encoding="utf-8")
    questions = [each for each in HEADING.findall(page.partition("## Ten questions")[2]) if each.endswith("?")]
    assert len(questions) == 10


def test_posts_per_month_are_the_same_in_duckdb_polars_and_pandas(
    collected: Path, answers: list[dict[str, Any]]
) -> None:
    duckdb_, polars_, pandas_ = only(answers, "per_month")
    posts = value(collected, "SELECT count(*) FROM posts")
    assert duckdb_["posts"].sum() == polars_["posts"].sum() == int(pandas_.sum()) == posts > 100
    assert duckdb_["posts"].to_list() == polars_["posts"].to_list() == pandas_.sort_index().to_list()


@pytest.mark.parametrize(
    ("name", "column", "source"),
    [
        (
            "edges",
            "replies",
            """posts p JOIN users u ON u.platform = p.platform AND u.id = p.in_reply_to_user_id
            WHERE p.author_id <> u.id""",
        ),
        ("quotes", "quotes", "posts WHERE quoted_id IS NOT NULL"),
        ("hours", "posts", "posts"),
    ],
)
def test_counts_agree_with_the_database(
    collected: Path, answers: list[dict[str, Any]], name: str, column: str, source: str
) -> None:
    (frame,) = only(answers, name)
    assert frame[column].sum() == value(collected, f"SELECT count(*) FROM {source}") > 0


def test_products_shops_and_likes_agree_with_the_database(collected: Path, answers: list[dict[str, Any]]) -> None:
    (prices,) = only(answers, "prices")
    linked = "SELECT count(*) FROM post_links m JOIN links l ON l.id = m.link_id WHERE l.product_id IS NOT NULL"
    assert len(prices) >= value(collected, linked) > 0
    (shops,) = only(answers, "shops")
    assert shops["posts"].max() <= value(collected, "SELECT count(DISTINCT post_id) FROM post_links")
    assert "shopee" in shops["shop"].to_list()
    (top,) = only(answers, "top")
    assert top["likes"].max() == value(collected, "SELECT max(likes) FROM posts")
    assert len(top) == 10
    (shared,) = only(answers, "shared")
    assert all(len(authors) > 1 for authors in shared["authors"].to_list())
    (gaps,) = only(answers, "gaps")
    assert set(gaps["state"].to_list()) <= {"not_looked_at", "sweeping"}, "the demo collects everything"
