"""Settings: flag over environment over .env over mistnet.toml over default."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import SettingsError as UnreadableSetting

from mistnet.kit.errors import SettingsError, did_you_mean, require_extra
from mistnet.kit.text import split_addresses, split_list
from mistnet.queue.events import EventKind
from mistnet.shops.catalog import CRAWL_LANES

PREFIX = "MISTNET_"
FREE_PREFIXES = ("MISTNET_TEST_", "MISTNET_BENCH_")
"""Environment variables that only the tests and benchmarks read."""

EVENT_KINDS = [str(kind) for kind in EventKind]
SUBSCRIBER = re.compile(r"(?!apprise-)[a-z0-9][a-z0-9_-]{0,62}")
TEN_YEARS = 315_360_000
LAST_PORT = 65_535
Seconds = Annotated[float, Field(gt=0, le=TEN_YEARS)]
Count = Annotated[int, Field(ge=1)]
Days = Annotated[float, Field(ge=0, le=36_500)]
"""How long something is kept. 0: for ever."""


def require_address(url: str, *schemes: str) -> None:
    """Refuses what no client could connect to, so that it is a setting's fault and not the client's."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"its host or port cannot be read; write {schemes[0]}://HOST:PORT") from None
    if parts.scheme not in schemes or not host:
        raise ValueError(f"must begin with {' or '.join(f'{each}://' for each in schemes)} and name a host")
    if port == 0:
        raise ValueError("there is no port 0; ports are numbers from 1 to 65535")


def _read_list(given: object, *, split: Callable[[str], list[str]]) -> object:
    """A text, as in the environment, is a list with commas or spaces between, or JSON."""
    if not isinstance(given, str):
        return given
    if not given.strip().startswith("["):
        return split(given)
    try:
        return json.loads(given)
    except ValueError:
        raise ValueError('write it with commas between, or as JSON: ["one", "two"]') from None


def _lane(given: str) -> str:
    if given not in CRAWL_LANES:
        known = ", ".join(CRAWL_LANES)
        raise ValueError(f"there is no lane {given[:40]!r}.{did_you_mean(given, CRAWL_LANES)} Known lanes: {known}")
    return given


def _robots(given: str) -> str:
    listed = [each.strip() for each in given.split(",") if each.strip() and each.strip() != "none"]
    return ",".join(_lane(each) for each in listed) or "none"


def _ports(given: str) -> str:
    listed = [each.strip() for each in given.split(",") if each.strip()]
    if not listed or not all(each.isdecimal() and 0 < int(each) <= LAST_PORT for each in listed):
        raise ValueError("write port numbers with commas between, such as 80,443")
    return ",".join(listed)


def _local_addresses(given: dict[str, str]) -> dict[str, str]:
    for base in given.values():
        require_address(base, "http")
        if urlsplit(base).hostname not in ("127.0.0.1", "localhost", "::1"):
            raise ValueError(f"{base[:80]!r} is not on this machine; write http://127.0.0.1:PORT")
    return given


def _base_url(given: str) -> str:
    require_address(given, "https", "http")
    return given.rstrip("/")


_names = BeforeValidator(partial(_read_list, split=split_list))
Names = Annotated[list[str], NoDecode, _names]
Keys = Annotated[list[SecretStr], NoDecode, _names]
Addresses = Annotated[list[SecretStr], NoDecode, BeforeValidator(partial(_read_list, split=split_addresses))]
BaseUrl = Annotated[str, AfterValidator(_base_url)]


class KindSettings(BaseModel):
    """Settings of one job kind, in a `[kinds.NAME]` table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: Count | None = Field(None, description="How many jobs its handler gets at once.")
    max_attempts: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="Tries before a job is dead.")
    running_cap: Count | None = Field(None, description="How many may run at once, over all workers.")
    live_cap: Count | None = Field(None, description="How many may be live; more are parked until there is room.")
    timeout_seconds: Seconds | None = Field(None, description="How long its handler may take.")


class GroupSettings(BaseModel):
    """A group of accounts with its own schedule, in a `[groups.NAME]` table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    accounts: Names = Field([], description="The handles of its accounts. The group `default` has all others.")
    every_seconds: Seconds | None = Field(None, description="How often its accounts are checked for new posts.")
    cron: str | None = Field(None, description="When its accounts are checked: a crontab line, in UTC.")
    day_credits: Count | None = Field(
        None, description="How many credits a day to spend, where they find most new posts."
    )

    @model_validator(mode="after")
    def _one_rhythm(self) -> GroupSettings:
        given = [name for name in ("every_seconds", "cron", "day_credits") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of every_seconds, cron and day_credits")
        return self


class WebhookSettings(BaseModel):
    """A receiver of events, in a `[webhooks.NAME]` table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: SecretStr = Field(description="The URL that events are sent to, as JSON in a POST.")
    secret: SecretStr = Field(description="The secret that they are signed with (HMAC-SHA256).")
    channel: Literal["data", "alerts"] = Field(
        "data", description="`data`: what was collected. `alerts`: what needs an operator."
    )
    events: Names = Field([], description="Only these kinds of events. Empty: all of the channel.")

    @field_validator("url")
    @classmethod
    def _is_http(cls, given: SecretStr) -> SecretStr:
        require_address(given.get_secret_value(), "https", "http")
        return given

    @field_validator("secret")
    @classmethod
    def _is_long(cls, given: SecretStr) -> SecretStr:
        if len(given.get_secret_value()) < 16:
            raise ValueError("it must have 16 characters or more; `openssl rand -hex 32` makes a good one")
        return given

    @field_validator("events")
    @classmethod
    def _are_known(cls, given: list[str]) -> list[str]:
        for name in given:
            if name not in EVENT_KINDS:
                raise ValueError(f"there is no event {name!r}.{did_you_mean(name, EVENT_KINDS)}")
        return given


class Settings(BaseSettings):
    """All settings. The name in the environment is MISTNET_ and the name here in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, populate_by_name=True
    )

    database_url: SecretStr = Field(
        SecretStr("sqlite:///mistnet.db"),
        description="The database: sqlite:///FILE, postgresql://… or libsql://…",
    )
    database_wait_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        60.0, description="How long workers and services wait, when they start, for a database that does not answer."
    )
    watchdog_seconds: Annotated[float, Field(ge=5, le=86_400)] | None = Field(
        None,
        description="A process that hangs for this long ends itself. Unset: a third of the lease, at least 10 s.",
    )
    worker_id: str | None = Field(
        None,
        validation_alias=AliasChoices("MISTNET_WORKER_ID", "WORKER_ID"),
        description="This worker's name; by default made of host, process id and a random part.",
    )
    concurrency: Count = Field(20, le=10_000, description="How many handlers a worker runs at once.")
    lease_seconds: Seconds = Field(
        300.0,
        validation_alias=AliasChoices("MISTNET_LEASE_SECONDS", "JOB_LOCK_TIMEOUT_SECONDS"),
        description="How long a worker holds a job without a heartbeat.",
    )
    heartbeat_seconds: Seconds = Field(20.0, description="How often a worker renews its leases.")
    reclaim_seconds: Seconds = Field(60.0, description="How often a worker looks for expired leases.")
    idle_poll_seconds: Seconds = Field(60.0, description="How long an idle worker waits before it polls.")
    backoff_base_seconds: Seconds = Field(60.0, description="The first wait after a failure; it doubles each time.")
    max_attempts: Annotated[int, Field(ge=1, le=1000)] = Field(5, description="Tries before a job is dead.")
    job_timeout_seconds: Seconds = Field(600.0, description="How long a handler may take, if its kind does not say.")
    grace_seconds: Annotated[float, Field(ge=0, le=TEN_YEARS)] = Field(
        30.0, description="How long running jobs may go on after SIGTERM before their leases are handed back."
    )
    aging_minutes: Seconds | None = Field(
        None,
        description="A job due for longer than this goes before all classes. Unset: classes are strict.",
    )
    history_days: Days = Field(
        30.0, description="How long finished jobs, events, closed alerts and ticks are kept. 0: for ever."
    )
    calls_days: Days = Field(
        90.0, description="How long single calls are kept; their sums by day stay, and `spend` with them. 0: for ever."
    )
    crawls_days: Days = Field(
        90.0, description="How long visits to pages are kept; the latest of each link stays. 0: for ever."
    )
    crawl_pages_days: Days = Field(
        0.0, description="How long pages are kept that `crawl_keep_pages` keeps with their visit. 0: for ever."
    )
    lane_caps: dict[str, Count] = Field({}, description="How many jobs of a lane may run at once, over all workers.")
    kinds: dict[str, KindSettings] = Field({}, description="Settings for single kinds, by their name.")
    plugins: Names = Field([], description="Your own job kinds, shops and sources: a list of module:function.")
    x_api_key: Keys = Field(
        [],
        validation_alias=AliasChoices("MISTNET_X_API_KEY", "TWITTERAPI_IO_TOKEN", "TWITTER_BEARER_TOKEN"),
        description="A TwitterAPI.io key, or several separated by commas, each with its own rate limit and budget.",
    )
    x_base_url: BaseUrl = Field("https://api.twitterapi.io", description="The URL of TwitterAPI.io.")
    x_rate_per_minute: Annotated[float, Field(gt=0, le=10_000_000)] = Field(
        900.0, description="How many calls a minute one key may make; a 429 lowers it for a while."
    )
    x_burst: Annotated[int, Field(ge=1, le=1000)] = Field(
        5, description="How many calls may start at once after a rest."
    )
    x_timeout_seconds: Seconds = Field(60.0, description="How long one call may take.")
    x_balance_lag_seconds: Annotated[float, Field(ge=0, le=TEN_YEARS)] = Field(
        120.0, description="How long after a call the balance of X may not include it yet."
    )
    x_day_credits: Annotated[int, Field(ge=0)] | None = Field(
        None, description="How many credits may be spent on X in a day (UTC). Unset: no cap."
    )
    x_month_credits: Annotated[int, Field(ge=0)] | None = Field(
        None, description="How many credits may be spent on X in a month (UTC). Unset: no cap."
    )
    confirm_credits: Annotated[int, Field(ge=0)] = Field(
        50_000,
        description="What follow lists or a new account may cost before you are asked to confirm, in credits.",
    )
    x_reposts: bool = Field(True, description="Whether native retweets are collected too, in a second pass.")
    threads_token: SecretStr | None = Field(
        None, min_length=8, description="The long-lived access token for Threads. Unset: no feed is polled."
    )
    threads_token_file: Path | None = Field(
        None, description="The file that refreshed tokens are stored in. Unset: the token is never refreshed."
    )
    threads_refresh_days: Annotated[float, Field(gt=0, le=58)] = Field(
        20.0, description="The token is refreshed when it is valid for fewer days than this."
    )
    threads_base_url: BaseUrl = Field("https://graph.threads.net", description="The URL of the Threads API.")
    threads_rate_per_minute: Annotated[float, Field(gt=0, le=10_000_000)] = Field(
        30.0, description="How many calls a minute are made to Threads, by all workers together."
    )
    threads_timeout_seconds: Seconds = Field(60.0, description="How long one call to Threads may take.")
    feed_every_seconds: Annotated[float, Field(ge=60, le=31_536_000)] = Field(
        1_800.0, description="How often a feed is polled, if it has no interval of its own."
    )
    feed_reply_days: Annotated[float, Field(ge=0, le=3650)] = Field(
        3.0, description="How long after a post the author's own replies to it are collected."
    )
    crawl_lanes: Annotated[Names, AfterValidator(lambda given: list(dict.fromkeys(map(_lane, given))))] = Field(
        [], description=f"Where links are followed: {', '.join(CRAWL_LANES)}, with commas between. None: nowhere."
    )
    crawl_rate_per_minute: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        30.0, description="How many pages a minute are fetched on each lane, by all workers together."
    )
    crawl_rates: dict[str, Annotated[float, Field(gt=0, le=1_000_000)]] = Field(
        {}, description="The same for single lanes, by their name."
    )
    crawl_host_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        1.0, description="The pause between two visits to one host, whichever worker makes them."
    )
    crawl_robots: Annotated[str, AfterValidator(_robots)] = Field(
        "web", description="Lanes on which robots.txt is obeyed, with commas between; `none` for none."
    )
    crawl_user_agent: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The user agent of visits. Unset: mistnet and its version."
    )
    crawl_timeout_seconds: Seconds = Field(20.0, description="How long one page may take.")
    crawl_largest_megabytes: Annotated[float, Field(gt=0, le=100)] = Field(
        5.0, description="Larger pages are not read, compressed or not."
    )
    crawl_read_seconds: Annotated[float, Field(ge=0.1, le=600)] = Field(
        5.0, description="How much CPU time reading one page may take. A page that takes more is unreadable."
    )
    crawl_read_megabytes: Annotated[int, Field(ge=50, le=100_000)] = Field(
        512, description="How much memory reading one page may take. A page that takes more is unreadable."
    )
    crawl_readers: Annotated[int, Field(ge=1, le=64)] = Field(
        2, description="How many pages a process reads at the same time, each in a child process of its own."
    )
    crawl_hops: Annotated[int, Field(ge=0, le=20)] = Field(5, description="How many redirects are followed, at most.")
    crawl_ports: Annotated[str, AfterValidator(_ports)] = Field(
        "80,443", description="Ports that pages may be fetched from, with commas between."
    )
    crawl_allow_hosts: Names = Field([], description="Hosts (or host:port) of private networks that may be visited.")
    crawl_via: Annotated[dict[str, str], AfterValidator(_local_addresses)] = Field(
        {}, description="For simulations: hosts (or *) and the address on this machine that answers for them."
    )
    crawl_cache: bool = Field(
        False, description="Whether visited pages are cached, and fetched again only if they changed."
    )
    crawl_cache_seconds: Seconds = Field(
        3_600.0,
        validation_alias=AliasChoices("MISTNET_CRAWL_CACHE_SECONDS", "CACHE_TTL_SECONDS"),
        description="How long a cached page is used without asking the site, in seconds.",
    )
    crawl_keep_pages: bool = Field(False, description="Whether each page is stored whole, compressed, with its visit.")
    crawl_every_hours: Annotated[float, Field(gt=0, le=87_600)] | None = Field(
        None, description="How often products are visited again. Unset: only by `mistnet products refresh`."
    )
    crawl_second_look_seconds: Annotated[float, Field(ge=0, le=TEN_YEARS)] = Field(
        600.0, description="The pause before an implausible price is checked again."
    )
    price_watch_percent: Annotated[float, Field(ge=0.01, le=1_000_000)] | None = Field(
        None, description="Watch every product for prices that change by more than this. Unset: only what you watch."
    )
    crawl_shopee_api: Literal["item", "pdp"] = Field(
        "item", description="Which of Shopee's own answers is read: the older item/get or the newer pdp/get_pc."
    )
    price_sources: Path | None = Field(
        None, description="A TOML file that describes further shops to ask for prices. Unset: there are none."
    )
    price_cache: bool = Field(
        True,
        validation_alias=AliasChoices("MISTNET_PRICE_CACHE", "CACHE_ENABLED"),
        description="Whether price answers are cached.",
    )
    price_cache_seconds: Seconds = Field(
        3_600.0,
        validation_alias=AliasChoices("MISTNET_PRICE_CACHE_SECONDS", "CACHE_TTL_SECONDS"),
        description="How long price answers are cached, in seconds.",
    )
    items_every_hours: Annotated[float, Field(gt=0, le=87_600)] = Field(
        24.0, description="How often items are priced, if they have no interval of their own."
    )
    ebay_client_id: SecretStr | None = Field(
        None, min_length=8, description="Your application's name at eBay (App ID). Unset: eBay's API is not called."
    )
    ebay_client_secret: SecretStr | None = Field(
        None, min_length=8, description="Your application's secret (Cert ID), which tokens are fetched with."
    )
    ebay_base_url: BaseUrl = Field("https://api.ebay.com", description="The URL of eBay's API.")
    ebay_marketplace: Annotated[str, Field(pattern="^EBAY_[A-Z]{2,6}$")] = Field(
        "EBAY_US", description="Which of eBay's marketplaces is searched, such as EBAY_DE."
    )
    ebay_rate_per_minute: Annotated[float, Field(gt=0, le=1_000_000)] = Field(
        60.0, description="How many calls a minute are made to eBay's API, by all workers together."
    )
    ebay_timeout_seconds: Seconds = Field(60.0, description="How long one call to eBay's API may take.")
    ebay_listings: Annotated[int, Field(ge=1, le=10_000)] = Field(
        200, description="How many listings are read for an item, at most; 200 are one call."
    )
    ebay_filter: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="An additional filter for eBay, as its documentation writes it."
    )
    ebay_sold: bool = Field(
        False, description="Whether completed sales are fetched too. eBay must have granted you Marketplace Insights."
    )
    breaker_failures: Count = Field(5, description="How many failures in a row open the breaker of a source.")
    breaker_seconds: Seconds = Field(300.0, description="How long it stays open before one call tests the source.")
    second_look_seconds: Annotated[float, Field(ge=0, le=TEN_YEARS)] = Field(
        30.0, description="The pause before the end of a history is confirmed."
    )
    batch_fill_seconds: Annotated[float, Field(ge=0, le=TEN_YEARS)] = Field(
        30.0, description="How long walks wait for others to fill a batch with; users by id wait three times as long."
    )
    relook_days: Annotated[float, Field(gt=0, le=3650)] = Field(
        7.0, description="How often accounts that cannot be collected are checked again."
    )
    batch_users_by_ids_max: Annotated[int, Field(ge=1, le=100)] = Field(
        100, description="How many users are fetched by id in one call, at most."
    )
    batch_posts_by_ids_max: Annotated[int, Field(ge=1, le=100)] = Field(
        50, description="How many posts are asked for by id in one call, at most."
    )
    ifttt_secret: SecretStr | None = Field(
        None, min_length=16, description="The secret that IFTTT sends with new followers. Unset: its webhook is off."
    )
    ifttt_target_id: Annotated[int, Field(gt=0)] | None = Field(
        None, description="The user id of the account whose new followers IFTTT reports."
    )
    host: str = Field("127.0.0.1", description="The address the API and the dashboard listen on.")
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(8470, description="Their port; 0 takes a free one.")
    socket: Path | None = Field(
        None, description="A Unix socket to listen on in place of `host` and `port`; only its owner can open it."
    )
    http_header_seconds: Seconds = Field(10.0, description="How long the head of a request may take to arrive.")
    http_body_seconds: Seconds = Field(120.0, description="How long the body of a request may take to arrive.")
    http_body_bytes_per_second: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        500, description="A request whose body arrives slower than this is refused."
    )
    http_idle_seconds: Seconds = Field(
        15.0, description="How long a connection may stay idle, or leave an answer unread, before it is closed."
    )
    http_connections: Annotated[int, Field(ge=2, le=100_000)] = Field(
        512, description="How many connections may be open at once; never more than half of the open files allowed."
    )
    admin_token: SecretStr | None = Field(
        None,
        min_length=16,
        description="A token that may do everything; others are made by `mistnet tokens add`.",
    )
    trusted_proxies: Names = Field(
        [],
        description="Addresses or networks of proxies whose forwarded client address is trusted; `unix`: the socket.",
    )
    session_hours: Annotated[float, Field(gt=0, le=8_760)] = Field(
        12.0, description="How long a log-in to the dashboard lasts."
    )
    run_wait_minutes: Annotated[float, Field(gt=0, le=525_600)] = Field(
        60.0, description="A run without progress for this long, and without a worker on it, ends as failed."
    )
    run_hours: Annotated[float, Field(gt=0, le=87_600)] = Field(24.0, description="How long finished runs are kept.")
    scheduler_enabled: bool = Field(
        True,
        validation_alias=AliasChoices("MISTNET_SCHEDULER_ENABLED", "SCRAPER_ENABLED"),
        description="Whether `up` and `serve` check accounts for new posts.",
    )
    groups: dict[str, GroupSettings] = Field(
        {}, description="Schedules for groups of accounts; `default` is for all others, every 15 minutes if not given."
    )
    leader_lease_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        30.0,
        description="How long the scheduling process leads without renewing its lease.",
    )
    auto_summarization_enabled: bool = Field(
        False,
        validation_alias=AliasChoices("MISTNET_AUTO_SUMMARIZATION_ENABLED", "AUTO_SUMMARIZATION_ENABLED"),
        description="Whether each run is followed by an event that asks for a summary of its new posts.",
    )
    webhooks: dict[str, WebhookSettings] = Field({}, description="Receivers of events, by name.")
    alert_urls: Addresses = Field([], description="Further receivers of alerts: Apprise URLs. Needs mistnet[apprise].")
    alert_due_minutes: Seconds = Field(30.0, description="Due work that waits longer than this raises an alert.")
    alert_breaker_minutes: Seconds = Field(
        15.0, description="A source whose breaker is open for longer than this raises an alert."
    )
    broker_url: SecretStr | None = Field(
        None, description="RabbitMQ, for lanes that are dispatched over it: amqp://… or amqps://… Needs mistnet[amqp]."
    )
    broker_ca_file: Path | None = Field(
        None, description="The CA that signed RabbitMQ's certificate. Unset: those of the system."
    )
    broker_cert_file: Path | None = Field(None, description="The client certificate for RabbitMQ.")
    broker_key_file: Path | None = Field(
        None, description="The key of that certificate, if it is in a file of its own."
    )
    amqp_lanes: Names = Field([], description="Lanes whose jobs go to workers over RabbitMQ.")
    amqp_queue_type: Literal["quorum", "classic"] = Field("quorum", description="The type of the queues in RabbitMQ.")
    amqp_prefetch: Annotated[int, Field(ge=1, le=10_000)] = Field(
        5, description="How many messages of a lane a worker holds at most."
    )
    amqp_window: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1_000,
        description="How many jobs of a lane are published to RabbitMQ at a time; the others wait.",
    )
    lane_priorities: dict[str, int] = Field(
        {}, description="Priorities of lanes for a worker's messages; the highest number first, 0 if not named."
    )
    republish_seconds: Seconds = Field(
        600.0, description="After this long without a claim the message of a job counts as lost and is sent again."
    )
    otel_endpoint: str | None = Field(
        None, description="The URL that traces are sent to (OTLP over HTTP). Unset: no traces. Needs mistnet[otel]."
    )
    log_format: Literal["text", "json"] = Field("text", description="The format of log lines.")
    log_level: Literal["TRACE", "DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="The least important log line that is written."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (pydantic's signature)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        if isinstance(env_settings, EnvSettingsSource):
            in_file = {name.lower(): value for name, value in env_file_variables().items()}
            env_settings.env_vars = {**in_file, **env_settings.env_vars}
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, settings_file())

    @field_validator("groups")
    @classmethod
    def _budgets_see_their_day(cls, given: dict[str, GroupSettings], info: ValidationInfo) -> dict[str, GroupSettings]:
        """What a group has spent today is computed from single calls, so they must be kept for a day."""
        kept = info.data.get("calls_days", 0)
        if 0 < kept < 1 and any(group.day_credits for group in given.values()):
            raise ValueError("day_credits need the calls of a whole day; set calls_days to 1 or more")
        return given

    @field_validator("crawl_rates")
    @classmethod
    def _are_of_lanes(cls, given: dict[str, float]) -> dict[str, float]:
        return {_lane(name): rate for name, rate in given.items()}

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, given: list[str]) -> list[str]:
        return [_network(each.lower()) for each in given]

    @field_validator("webhooks")
    @classmethod
    def _have_plain_names(cls, given: dict[str, WebhookSettings]) -> dict[str, WebhookSettings]:
        for name in given:
            if not SUBSCRIBER.fullmatch(name):
                raise ValueError(f"{name!r}: use small letters, digits, - and _, and do not begin with apprise-")
        return given

    @field_validator("otel_endpoint")
    @classmethod
    def _is_reachable(cls, given: str | None) -> str | None:
        if given:
            require_address(given, "https", "http")
        return given

    @field_validator("broker_url")
    @classmethod
    def _is_amqp(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            require_address(given.get_secret_value(), "amqp", "amqps")
        return given

    @property
    def heartbeat(self) -> timedelta:
        return timedelta(seconds=self.heartbeat_seconds)

    @property
    def secrets(self) -> list[str]:
        """What must never be shown: keys, tokens, and the database's password, also decoded."""
        ebay = (self.ebay_client_id, self.ebay_client_secret)
        own = [each for each in (self.admin_token, self.ifttt_secret, self.threads_token, *ebay) if each]
        given = [*self.x_api_key, *self.alert_urls, *own]
        given += [each for hook in self.webhooks.values() for each in (hook.url, hook.secret)]
        found = {each.get_secret_value() for each in given} | _hidden_in(self.database_url.get_secret_value())
        found |= _hidden_in(self.broker_url.get_secret_value()) if self.broker_url else set()
        return sorted(found - {""}, key=len, reverse=True)


def _hidden_in(url: str) -> set[str]:
    """The password or token in a URL, as written and percent-decoded."""
    try:
        parts = urlsplit(url)
        written = {parts.password or "", *(each for each in parts.query.split("&") if each.startswith("authToken="))}
    except ValueError:
        return set()
    bare = {each.removeprefix("authToken=") for each in written}
    return bare | {unquote(each) for each in bare}


def _network(given: str) -> str:
    if given == "unix":
        return given
    try:
        network = ip_network(given)
    except ValueError:
        raise ValueError(
            f"{given[:60]!r} is neither an address nor a network; write 127.0.0.1, 10.0.0.0/8, 2001:db8::/32 or unix"
        ) from None
    if network.prefixlen == 0:
        raise ValueError(f"{given} is every address there is; name the addresses of your proxies")
    return str(network)


_NEEDED_EXTRAS: Mapping[str, str] = {"broker_url": "amqp", "alert_urls": "apprise", "otel_endpoint": "otel"}


def load_settings(**flags: Any) -> Settings:
    """Read flags, environment and file. A typo or a bad value is one error that names its place."""
    _refuse_unknown_variables(os.environ, "environment")
    _refuse_unknown_variables(env_file_variables(), str(ENV_FILE))
    if "MISTNET_CONFIG" in os.environ and not settings_file().is_file():
        raise SettingsError("MISTNET_CONFIG", "environment", f"there is no file {settings_file()}")
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**given)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError("file", str(settings_file()), f"not valid TOML: {error}") from None
    except UnreadableSetting as error:
        # A table in the environment that is not JSON; the message of pydantic names its field in quotes.
        name = str(error).partition('"')[2].partition('"')[0]
        raise SettingsError(name, _where(name), 'write it as JSON, for example {"name": 1}') from None
    except ValidationError as error:
        raise _settings_error(error) from None
    if settings.heartbeat_seconds >= settings.lease_seconds:
        raise SettingsError(
            "heartbeat_seconds", "settings", f"must be shorter than lease_seconds ({settings.lease_seconds:g})"
        )
    if settings.amqp_lanes and settings.broker_url is None:
        raise SettingsError(
            "broker_url",
            "settings",
            "amqp_lanes names lanes that go over RabbitMQ, and nothing says where it is: set MISTNET_BROKER_URL, "
            "or leave amqp_lanes empty",
        )
    for name, extra in _NEEDED_EXTRAS.items():
        if getattr(settings, name):
            require_extra(extra, name)
    return settings


ENV_FILE = Path(".env")


def env_file_variables() -> Mapping[str, str]:
    """What the file .env of this folder sets: MISTNET_ variables, and those that a setting takes besides."""
    if not ENV_FILE.is_file():
        return {}
    from dotenv import dotenv_values  # noqa: PLC0415 (few folders have such a file)

    known = {variable for field in Settings.model_fields for variable in _variables(field)}
    try:
        values = dotenv_values(ENV_FILE, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("file", str(ENV_FILE), f"cannot be read: {error}") from None
    return {name: value for name, value in values.items() if value and (name.startswith(PREFIX) or name in known)}


def settings_file() -> Path:
    return Path(os.environ.get("MISTNET_CONFIG", "mistnet.toml"))


def _refuse_unknown_variables(environment: Mapping[str, str], place: str) -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | {"MISTNET_CONFIG"}
    for name in environment:
        if name.startswith(PREFIX) and not name.startswith(FREE_PREFIXES) and name.split("__")[0] not in known:
            raise SettingsError(name, place, f"there is no such setting.{did_you_mean(name, known)}")


def _settings_error(error: ValidationError) -> SettingsError:
    first = error.errors(include_url=False, include_input=False)[0]
    top, *rest = (str(part) for part in first["loc"])
    field = next((field for field in Settings.model_fields if top in _variables(field)), top)
    place = ".".join([field, *rest])
    if first["type"] == "extra_forbidden":
        known = _TABLES.get(place.split(".")[0], Settings).model_fields
        problem = f"there is no such setting.{did_you_mean(str(first['loc'][-1]), known)}"
    elif first["type"] == "missing":
        problem = "is missing"
    else:
        said = first["msg"].removeprefix("Value error, ")
        problem = said[:1].lower() + said[1:]
    return SettingsError(place, _where(place), problem)


_TABLES: Mapping[str, type[BaseModel]] = {
    "kinds": KindSettings,
    "groups": GroupSettings,
    "webhooks": WebhookSettings,
}


def _variables(field: str) -> list[str]:
    """The names a setting has in the environment, the one that counts first."""
    alias = Settings.model_fields[field].validation_alias if field in Settings.model_fields else None
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [f"{PREFIX}{field.upper()}"]


def _where(place: str) -> str:
    top = place.split(".", maxsplit=1)[0]
    for source, variables in (("environment", os.environ), (str(ENV_FILE), env_file_variables())):
        for variable in _variables(top):
            if any(name == variable or name.startswith(f"{variable}__") for name in variables):
                return f"{source} ({variable})"
    try:
        in_file = top in tomllib.loads(settings_file().read_text())
    except (OSError, tomllib.TOMLDecodeError):
        in_file = False
    return str(settings_file()) if in_file else "flag"
