"""Loads the SQL files of every feature, and builds inserts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeAlias

from sqlalchemy import BigInteger, Boolean, Integer, SmallInteger, Table, Text, TextClause, bindparam, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import BindParameter
from sqlalchemy.sql.selectable import TextualSelect
from sqlalchemy.types import TypeEngine

from mistnet.kit import types

_BIND = re.compile(r"(?<![:\w]):([a-z_]+)")
_COMMENT = re.compile(r"--[^\n]*")

_BINDS: dict[str, TypeEngine[Any]] = {
    "ids": types.IDS,
    "fences": types.IDS,
    "follower_ids": types.IDS,
    "followed_ids": types.IDS,
    "ingest_id": BigInteger(),
    "since": types.UtcTime(),
    "kinds": types.TEXTS,
    "names": types.TEXTS,
    "keys": types.TEXTS,
    "lanes": types.TEXTS,
    "platforms": types.TEXTS,
    "states": types.TEXTS,
    "args_list": types.TEXTS,
    "errors": types.TEXTS,
    "reasons": types.TEXTS,
    "workers": types.TEXTS,
    "classes": types.SMALL_NUMBERS,
    "attempts_list": types.SMALL_NUMBERS,
    "max_attempts_list": types.SMALL_NUMBERS,
    "takes": types.NUMBERS,
    "kind_caps": types.NUMBERS,
    "lane_caps": types.NUMBERS,
    "run_ats": types.TIMES,
    "alones": types.FLAGS,
    "parkeds": types.FLAGS,
    "now": types.UtcTime(),
    "until": types.UtcTime(),
    "before": types.UtcTime(),
    "aged_before": types.UtcTime(),
    "lease_until": types.UtcTime(),
    "lost_before": types.UtcTime(),
    "run_at": types.UtcTime(),
    "next_look_at": types.UtcTime(),
    "user_id": BigInteger(),
    "oldest": BigInteger(),
    "newest": BigInteger(),
    "newest_repost": BigInteger(),
    "found": BigInteger(),
    "backfilled": Boolean(),
    "reposts_backfilled": Boolean(),
    "id": BigInteger(),
    "fence": BigInteger(),
    "class": SmallInteger(),
    "attempts": SmallInteger(),
    "max_attempts": SmallInteger(),
    "alone": Boolean(),
    "parked": Boolean(),
    "limit": Integer(),
    "room": Integer(),
    "take": Integer(),
    "cap": Integer(),
}
_LISTS = {"known", "known_lanes"}
_RESULTS: dict[str, TypeEngine[Any]] = {
    name: types.UtcTime()
    for name in (
        "run_at",
        "created_at",
        "started_at",
        "finished_at",
        "lease_until",
        "next_due_at",
        "oldest_due_at",
        "oldest_at",
        "at",
        "seen_at",
        "profiled_at",
        "last_updated_at",
    )
}


@cache
def statement(name: str, dialect: str) -> TextualSelect:
    """The statement of that name for a dialect, with its binds and results typed."""
    return command(name, dialect).columns(**_RESULTS)


@cache
def command(name: str, dialect: str) -> TextClause:
    """A statement that returns no rows, such as one made for many sets of values at once."""
    sql = _COMMENT.sub("", _read(name, dialect)).strip()
    return text(sql).bindparams(*(_bind(bind) for bind in sorted(set(_BIND.findall(sql)))))


def _read(name: str, dialect: str) -> str:
    known = _files()
    return (known.get((dialect, name)) or known["common", name]).read_text(encoding="utf-8")


@cache
def _files() -> Mapping[tuple[str, str], Traversable]:
    """Every statement by dialect and name. Each feature keeps its own under `sql`; no name is used twice."""
    return {
        (folder.name, file.name.removesuffix(".sql")): file
        for feature in files("mistnet").iterdir()
        if (feature / "sql").is_dir()
        for folder in (feature / "sql").iterdir()
        for file in folder.iterdir()
    }


def _bind(name: str) -> BindParameter[Any]:
    if name in _LISTS:
        return bindparam(name, type_=Text(), expanding=True)
    return bindparam(name, type_=_BINDS.get(name, Text()))


Insert: TypeAlias = postgresql.Insert | sqlite.Insert


def insert_of(dialect: str) -> Callable[[Table], Insert]:
    return postgresql.insert if dialect == "postgresql" else sqlite.insert
