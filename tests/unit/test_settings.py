"""Settings: where they come from, and what happens to a slip of the pen."""

from pathlib import Path
from typing import get_origin

import pytest
from pydantic_settings import NoDecode

from mistnet.kit.database import parse_url
from mistnet.kit.errors import SettingsError
from mistnet.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_defaults_are_the_documented_ones() -> None:
    settings = load_settings()
    assert (settings.lease_seconds, settings.heartbeat_seconds, settings.reclaim_seconds) == (300, 20, 60)
    assert (settings.idle_poll_seconds, settings.max_attempts, settings.backoff_base_seconds) == (60, 5, 60)
    assert settings.database_url.get_secret_value() == "sqlite:///mistnet.db"


def test_a_flag_beats_the_environment_which_beats_the_file(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_folder / "mistnet.toml").write_text("max_attempts = 7\nlease_seconds = 50\nconcurrency = 3\n")
    monkeypatch.setenv("MISTNET_LEASE_SECONDS", "70")
    settings = load_settings(concurrency=9)
    assert (settings.max_attempts, settings.lease_seconds, settings.concurrency) == (7, 70, 9)


def test_the_older_names_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_ID", "worker-1")
    monkeypatch.setenv("JOB_LOCK_TIMEOUT_SECONDS", "120")
    settings = load_settings()
    assert (settings.worker_id, settings.lease_seconds) == ("worker-1", 120)


def test_kinds_are_set_by_name(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_folder / "mistnet.toml").write_text("[kinds.walk]\nbatch = 5\n")
    monkeypatch.setenv("MISTNET_KINDS__SWEEP__MAX_ATTEMPTS", "2")
    settings = load_settings()
    assert settings.kinds["walk"].batch == 5
    assert settings.kinds["sweep"].max_attempts == 2


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("leese_seconds = 5", r"mistnet\.toml: leese_seconds: there is no such setting\. Did you mean 'lease_seconds'"),
        ("[kinds.walk]\nbatsh = 5", r"kinds\.walk\.batsh: there is no such setting\. Did you mean 'batch'"),
        ("lease_seconds = 'soon'", r"mistnet\.toml: lease_seconds: input should be a valid number"),
        ("lease_seconds = 0", r"greater than 0"),
        ("lease_seconds = ", r"not valid TOML"),
        ("heartbeat_seconds = 300", r"heartbeat_seconds: must be shorter than lease_seconds"),
        ('amqp_lanes = ["web"]', r"broker_url: amqp_lanes names lanes that go over RabbitMQ.*set MISTNET_BROKER_URL"),
    ],
)
def test_a_slip_in_the_file_is_named_with_its_place(own_folder: Path, file: str, told: str) -> None:
    (own_folder / "mistnet.toml").write_text(file)
    with pytest.raises(SettingsError, match=told):
        load_settings()


def test_a_slip_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_LEASE_SECOND", "5")
    with pytest.raises(SettingsError, match=r"MISTNET_LEASE_SECOND.*Did you mean 'MISTNET_LEASE_SECONDS'"):
        load_settings()


def test_a_named_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_CONFIG", "elsewhere.toml")
    with pytest.raises(SettingsError, match=r"there is no file elsewhere\.toml"):
        load_settings()


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_DATABASE_URL", "postgresql://me:sesame12@host/db")
    assert "sesame12" not in repr(load_settings())


def test_our_own_name_beats_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_LOCK_TIMEOUT_SECONDS", "120")
    monkeypatch.setenv("MISTNET_LEASE_SECONDS", "90")
    monkeypatch.setenv("LEASE_SECONDS", "50")
    assert load_settings().lease_seconds == 90


def test_a_bad_value_under_an_older_name_names_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_LOCK_TIMEOUT_SECONDS", "soon")
    with pytest.raises(SettingsError, match=r"environment.*JOB_LOCK_TIMEOUT_SECONDS"):
        load_settings()


@pytest.mark.parametrize("value", ["inf", "nan", "1e300"])
def test_a_time_beyond_all_measure_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MISTNET_GRACE_SECONDS", "MISTNET_HISTORY_DAYS", "MISTNET_IDLE_POLL_SECONDS"):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(SettingsError, match=name):
                load_settings()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "postgresql://host:port/name"])
def test_a_database_without_a_place_is_a_settings_error(url: str) -> None:
    with pytest.raises(SettingsError, match="database_url"):
        parse_url(url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MISTNET_X_BASE_URL", "http://127.0.0.1:notaport"),
        ("MISTNET_X_BASE_URL", "http://127.0.0.1:99999"),
        ("MISTNET_X_BASE_URL", "https://"),
        ("MISTNET_THREADS_BASE_URL", "http://[::1"),
        ("MISTNET_EBAY_BASE_URL", "http://:8000"),
        ("MISTNET_BROKER_URL", "amqp://127.0.0.1:notaport"),
        ("MISTNET_CRAWL_VIA", '{"shopee.tw": "http://127.0.0.1:notaport"}'),
        ("MISTNET_WEBHOOKS", '{"a": {"url": "http://127.0.0.1:notaport", "secret": "0123456789abcdef"}}'),
        ("MISTNET_OTEL_ENDPOINT", "http://127.0.0.1:notaport"),
    ],
)
def test_an_address_that_cannot_be_one_is_a_settings_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert name in str(refused.value)


def test_trusted_proxies_are_addresses_networks_or_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_TRUSTED_PROXIES", "127.0.0.1, 10.0.0.0/8 2001:DB8::/32,unix")
    assert load_settings().trusted_proxies == ["127.0.0.1/32", "10.0.0.0/8", "2001:db8::/32", "unix"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("nginx", "'nginx' is neither an address nor a network"),
        ("10.0.0.5/8", "'10.0.0.5/8' is neither an address nor a network"),
        ("0.0.0.0/0", "0.0.0.0/0 is every address there is; name the addresses of your proxies"),
        ("::/0", "::/0 is every address there is"),
    ],
)
def test_a_proxy_that_is_no_address_or_every_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, written: str, said: str
) -> None:
    monkeypatch.setenv("MISTNET_TRUSTED_PROXIES", written)
    with pytest.raises(SettingsError, match="MISTNET_TRUSTED_PROXIES") as refused:
        load_settings()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "written", ["one:a,two:b", "one:a, two:b", "one:a two:b", '["one:a", "two:b"]', "one:a,,two:b,"]
)
def test_every_list_may_be_written_with_commas_with_spaces_or_as_json(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("MISTNET_BROKER_URL", "amqp://127.0.0.1/")
    for name in ("PLUGINS", "CRAWL_ALLOW_HOSTS", "AMQP_LANES", "X_API_KEY", "GROUPS__NEWS__ACCOUNTS"):
        monkeypatch.setenv(f"MISTNET_{name}", written)
    monkeypatch.setenv("MISTNET_GROUPS__NEWS__EVERY_SECONDS", "60")
    settings = load_settings()
    keys = [each.get_secret_value() for each in settings.x_api_key]
    lists = [settings.plugins, settings.crawl_allow_hosts, settings.amqp_lanes, keys, settings.groups["news"].accounts]
    assert lists == [["one:a", "two:b"]] * 5


def test_no_list_is_left_to_json_alone() -> None:
    lists = [name for name, field in Settings.model_fields.items() if get_origin(field.annotation) is list]
    assert {"plugins", "x_api_key", "crawl_lanes", "crawl_allow_hosts", "alert_urls", "amqp_lanes"} <= {*lists}
    assert [name for name in lists if NoDecode not in Settings.model_fields[name].metadata] == []


def test_addresses_keep_the_commas_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = "mailtos://me:pw@example.org?to=a@example.org,b@example.org", "json://127.0.0.1/hook"
    monkeypatch.setenv("MISTNET_ALERT_URLS", f"{first}, {second}")
    assert [each.get_secret_value() for each in load_settings().alert_urls] == [first, second]


def test_a_list_that_is_half_json_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTNET_PLUGINS", '["one:a"')
    with pytest.raises(SettingsError, match=r"MISTNET_PLUGINS.*plugins.*with commas between, or as JSON"):
        load_settings()
