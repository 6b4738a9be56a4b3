"""URLs of libSQL servers: what they mean, and that their token is never shown."""

import pytest
from sqlalchemy.engine import make_url

from mistnet.kit.database import Database, parse_url
from mistnet.kit.errors import SettingsError
from mistnet.kit.libsql.server import address_of, shown
from mistnet.settings import load_settings

TOKEN = "eyJhbGciOiJFZERTQSJ9.eyJhIjoicncifQ.s1gn-a_ture"


@pytest.mark.parametrize(
    ("url", "base_url", "token"),
    [
        (f"libsql://my-db.turso.io?authToken={TOKEN}", "https://my-db.turso.io", TOKEN),
        (f"libsql://my-db.turso.io/?authToken={TOKEN}", "https://my-db.turso.io", TOKEN),
        (f"libsql://:{TOKEN}@my-db.turso.io", "https://my-db.turso.io", TOKEN),
        ("libsql://localhost:8080?tls=0", "http://localhost:8080", None),
        ("libsql+http://127.0.0.1:8080", "http://127.0.0.1:8080", None),
        ("libsql+https://db.example.org", "https://db.example.org", None),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080", None),
        (f"https://db.example.org:8443?authToken={TOKEN}", "https://db.example.org:8443", TOKEN),
        ("http://[::1]:8080", "http://[::1]:8080", None),
    ],
)
def test_each_form_names_a_server(url: str, base_url: str, token: str | None) -> None:
    address = address_of(make_url(url))
    assert (address.base_url, address.token) == (base_url, token)
    assert parse_url(url).get_backend_name() == "sqlite"
    assert TOKEN not in repr(address)
    assert TOKEN not in shown(make_url(url))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("libsql://", "libsql://HOST"),
        ("libsql:///file.db", "libsql://HOST"),
        ("libsql://host/database", "libsql://HOST"),
        (f"libsql://host?authtoken={TOKEN}", "authToken"),
        (f"libsql://host?authToken={TOKEN}%0aX-Other:%201", "line breaks"),
        ("libsql+websocket://host", "no driver"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_showing_the_token(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        parse_url(url)
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("url", [f"libsql://host?authToken={TOKEN}", f"https://:{TOKEN}@host"])
def test_the_token_is_among_the_secrets_and_hidden_where_the_database_is_shown(url: str) -> None:
    assert TOKEN in load_settings(database_url=url).secrets
    database = Database(url)
    assert "***" in database.shown_url
    assert TOKEN not in f"{database.shown_url} {database.url!r} {database.engine!r}"
    assert (database.dialect, database.product) == ("sqlite", "libsql")
