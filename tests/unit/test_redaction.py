"""Secrets and endless texts stay out of what is stored and shown."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.kit.text import redact, shorten

SECRETS = st.text(alphabet=string.ascii_letters + string.digits + "-_", min_size=8, max_size=60)


@given(SECRETS, st.text(), st.text())
def test_a_known_secret_never_shows(secret: str, before: str, after: str) -> None:
    if secret in before + after:
        return
    assert secret not in redact(f"{before}{secret}{after}", [secret])


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:sesame12@host/db",
        "Authorization: Bearer sesame12",
        "authorization: basic sesame12==",
        "X-API-Key: sesame12",
        '{"api_key": "sesame12"}',
        "{'access_token': 'sesame12'}",
        "https://host/path?token=sesame12&page=2",
        "password=sesame12",
        "amqps://user:sesame12@broker:5671/",
    ],
)
def test_what_stands_where_a_secret_would_is_masked(text: str) -> None:
    assert "sesame12" not in redact(text)


def test_ordinary_words_stay() -> None:
    text = "the token bucket is empty; see https://example.org/a:b and mail@example.org"
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Error validating access token: Session has expired on Friday, 06-Mar-26",
        "the token: Nobody knows it",
    ],
)
def test_a_sentence_about_a_token_can_be_read(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", ["password: Sesame", "token: Sesame1 and more", "secret=Sesame opens it"])
def test_what_is_no_sentence_is_masked(text: str) -> None:
    assert "Sesame" not in redact(text)


@pytest.mark.parametrize("part", ["y", "a:", "bearer ", " ", "token=", "://", "x-", "'", "api_key", "http://u:"])
def test_hostile_text_is_read_in_linear_time(part: str) -> None:
    """A quadratic pattern would take minutes for this; the test's own time limit would end it."""
    redact(part * 200_000)


@given(st.text(max_size=3000), st.integers(200, 1000))
def test_a_shortened_text_fits_and_keeps_both_ends(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= max(limit, 0) or text == short
    assert short[:50] == text[:50]
    assert text.endswith(short[-50:])
