"""The log: short for people, JSON for machines, and never a secret in either."""

import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from loguru import logger

from mistnet.cli import command
from mistnet.settings import Settings


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    logger.remove()


def test_a_json_line_carries_every_fact(stream: io.StringIO) -> None:
    command.set_up_log(style="json", level="INFO", stream=stream)
    logger.info("job {job_id} {kind} done", job_id=12, kind="walk", latency_ms=1.5)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "message": "job 12 walk done",
        "job_id": "12",
        "kind": "walk",
        "latency_ms": 1.5,
    }


def test_a_fact_cannot_take_the_place_of_the_level(stream: io.StringIO) -> None:
    command.set_up_log(style="json", level="INFO", stream=stream)
    logger.bind(level="nonsense", message="other").warning("true")
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"]) == ("WARNING", "true")


@pytest.mark.parametrize("style", ["text", "json"])
def test_secrets_never_reach_the_log(stream: io.StringIO, style: str) -> None:
    command.set_up_log(style="json" if style == "json" else "text", level="INFO", secrets=["hunter22"], stream=stream)
    logger.info("connected with hunter22 to postgresql://u:pw123@h/x", note="the word is hunter22")
    try:
        int("hunter22 was refused, api_key=abc123456")
    except ValueError:
        logger.exception("refused")
    said = stream.getvalue()
    assert "refused" in said
    for secret in ("hunter22", "pw123", "abc123456"):
        assert secret not in said


def test_a_text_line_begins_with_its_date_and_time_in_utc(stream: io.StringIO) -> None:
    command.set_up_log(style="text", level="INFO", stream=stream)
    logger.info("well")
    assert re.match(rf"{datetime.now(UTC):%Y-%m-%d} \d\d:\d\d:\d\d\.\d{{3}} INFO    well\n", stream.getvalue())


def test_a_text_line_stays_one_line(stream: io.StringIO) -> None:
    command.set_up_log(style="text", level="INFO", stream=stream)
    logger.info("one\ntwo \x1b[31mred")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_braces_and_tags_in_a_message_are_only_text(stream: io.StringIO) -> None:
    command.set_up_log(style="text", level="INFO", stream=stream)
    logger.info("got {what}", what="<red>{x}</red>")
    assert "got <red>{x}</red>" in stream.getvalue()


def test_lines_below_the_level_are_not_written(stream: io.StringIO) -> None:
    command.set_up_log(style="text", level="WARNING", stream=stream)
    logger.info("too quiet")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("postgresql://u:p%40ss@h/x", ["p%40ss", "p@ss"]),
        ("sqlite:///queue.db", []),
        ("postgresql://[bad", []),
    ],
)
def test_the_password_is_a_secret_as_written_and_as_meant(url: str, secrets: list[str]) -> None:
    assert Settings.model_validate({"database_url": url}).secrets == secrets
