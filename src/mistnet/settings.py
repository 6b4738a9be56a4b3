"""Settings: flag over environment over .env over mistnet.toml over default."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
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
Pause = Annotated[float, Field(ge=0, le=TEN_YEARS)]
Wait = Annotated[float, Field(ge=0, le=86_400)]
Hours = Annotated[float, Field(gt=0, le=87_600)]
Rate = Annotated[float, Field(gt=0, le=1_000_000)]
Count = Annotated[int, Field(ge=1)]
Credits = Annotated[int, Field(ge=0)]
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


_names = BeforeValidator(partial(_read_list, split=split_list))
Names = Annotated[list[str], NoDecode, _names]
Keys = Annotated[list[SecretStr], NoDecode, _names]
Addresses = Annotated[list[SecretStr], NoDecode, BeforeValidator(partial(_read_list, split=split_addresses))]


def declare(default: Any, description: str, *, env: Sequence[str] = (), **rules: Any) -> Any:
    """A setting. `env` are its variables if it has several, the one that counts first; `rules` are those of `Field`."""
    alias = AliasChoices(*env) if env else None
    return Field(default, description=description, validation_alias=alias, **rules)


class KindSettings(BaseModel):
    """Settings of one job kind, in a `[kinds.NAME]` table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: Count | None = declare(None, "How many jobs its handler gets at once.")
    max_attempts: Annotated[int, Field(ge=1, le=1000)] | None = declare(None, "Tries before a job is dead.")
    running_cap: Count | None = declare(None, "How many may run at once, over all workers.")
    live_cap: Count | None = declare(None, "How many may be live; more are parked until there is room.")
    timeout_seconds: Seconds | None = declare(None, "How long its handler may take.")


class GroupSettings(BaseModel):
    """A group of accounts with its own schedule, in a `[groups.NAME]` table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    accounts: Names = declare([], "The handles of its accounts. The group `default` has all others.")
    every_seconds: Seconds | None = declare(None, "How often its accounts are checked for new posts.")
    cron: str | None = declare(None, "When its accounts are checked: a crontab line, in UTC.")
    day_credits: Count | None = declare(None, "How many credits a day to spend, where they find most new posts.")

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
    channel: Literal["data", "alerts"] = declare(
        "data", "`data`: what was collected. `alerts`: what needs an operator."
    )
    events: Names = declare([], "Only these kinds of events. Empty: all of the channel.")

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

    database_url: SecretStr = declare(
        SecretStr("sqlite:///mistnet.db"), "The database: sqlite:///FILE, postgresql://… or libsql://…"
    )
    database_wait_seconds: Wait = declare(
        60.0, "How long workers and services wait, when they start, for a database that does not answer."
    )
    watchdog_seconds: Annotated[float, Field(ge=5, le=86_400)] | None = declare(
        None, "A process that hangs for this long ends itself. Unset: a third of the lease, at least 10 s."
    )
    worker_id: str | None = declare(
        None,
        "This worker's name; by default made of host, process id and a random part.",
        env=["MISTNET_WORKER_ID", "WORKER_ID"],
    )
    concurrency: Count = declare(20, "How many handlers a worker runs at once.", le=10_000)
    lease_seconds: Seconds = declare(
        300.0,
        "How long a worker holds a job without a heartbeat.",
        env=["MISTNET_LEASE_SECONDS", "JOB_LOCK_TIMEOUT_SECONDS"],
    )
    heartbeat_seconds: Seconds = declare(20.0, "How often a worker renews its leases.")
    reclaim_seconds: Seconds = declare(60.0, "How often a worker looks for expired leases.")
    idle_poll_seconds: Seconds = declare(60.0, "How long an idle worker waits before it polls.")
    backoff_base_seconds: Seconds = declare(60.0, "The first wait after a failure; it doubles each time.")
    max_attempts: int = declare(5, "Tries before a job is dead.", ge=1, le=1000)
    job_timeout_seconds: Seconds = declare(600.0, "How long a handler may take, if its kind does not say.")
    grace_seconds: Pause = declare(
        30.0, "How long running jobs may go on after SIGTERM before their leases are handed back."
    )
    aging_minutes: Seconds | None = declare(
        None, "A job due for longer than this goes before all classes. Unset: classes are strict."
    )
    history_days: Days = declare(30.0, "How long finished jobs, events, closed alerts and ticks are kept. 0: for ever.")
    calls_days: Days = declare(
        90.0, "How long single calls are kept; their sums by day stay, and `spend` with them. 0: for ever."
    )
    crawls_days: Days = declare(90.0, "How long visits to pages are kept; the latest of each link stays. 0: for ever.")
    crawl_pages_days: Days = declare(
        0.0, "How long pages are kept that `crawl_keep_pages` keeps with their visit. 0: for ever."
    )
    lane_caps: dict[str, Count] = declare({}, "How many jobs of a lane may run at once, over all workers.")
    kinds: dict[str, KindSettings] = declare({}, "Settings for single kinds, by their name.")
    plugins: Names = declare([], "Your own job kinds, shops and sources: a list of module:function.")
    x_api_key: Keys = declare(
        [],
        "A TwitterAPI.io key, or several separated by commas, each with its own rate limit and budget.",
        env=["MISTNET_X_API_KEY", "TWITTERAPI_IO_TOKEN", "TWITTER_BEARER_TOKEN"],
    )
    x_base_url: str = declare("https://api.twitterapi.io", "The URL of TwitterAPI.io.")
    x_rate_per_minute: float = declare(
        900.0, "How many calls a minute one key may make; a 429 lowers it for a while.", gt=0, le=10_000_000
    )
    x_burst: int = declare(5, "How many calls may start at once after a rest.", ge=1, le=1000)
    x_timeout_seconds: Seconds = declare(60.0, "How long one call may take.")
    x_balance_lag_seconds: Pause = declare(120.0, "How long after a call the balance of X may not include it yet.")
    x_day_credits: Credits | None = declare(None, "How many credits may be spent on X in a day (UTC). Unset: no cap.")
    x_month_credits: Credits | None = declare(
        None, "How many credits may be spent on X in a month (UTC). Unset: no cap."
    )
    confirm_credits: Credits = declare(
        50_000, "What follow lists or a new account may cost before you are asked to confirm, in credits."
    )
    x_reposts: bool = declare(True, "Whether native retweets are collected too, in a second pass.")
    threads_token: SecretStr | None = declare(
        None, "The long-lived access token for Threads. Unset: no feed is polled.", min_length=8
    )
    threads_token_file: Path | None = declare(
        None, "The file that refreshed tokens are stored in. Unset: the token is never refreshed."
    )
    threads_refresh_days: float = declare(
        20.0, "The token is refreshed when it is valid for fewer days than this.", gt=0, le=58
    )
    threads_base_url: str = declare("https://graph.threads.net", "The URL of the Threads API.")
    threads_rate_per_minute: float = declare(
        30.0, "How many calls a minute are made to Threads, by all workers together.", gt=0, le=10_000_000
    )
    threads_timeout_seconds: Seconds = declare(60.0, "How long one call to Threads may take.")
    feed_every_seconds: float = declare(
        1_800.0, "How often a feed is polled, if it has no interval of its own.", ge=60, le=31_536_000
    )
    feed_reply_days: float = declare(
        3.0, "How long after a post the author's own replies to it are collected.", ge=0, le=3650
    )
    crawl_lanes: Names = declare(
        [], f"Where links are followed: {', '.join(CRAWL_LANES)}, with commas between. None: nowhere."
    )
    crawl_rate_per_minute: Rate = declare(
        30.0, "How many pages a minute are fetched on each lane, by all workers together."
    )
    crawl_rates: dict[str, Rate] = declare({}, "The same for single lanes, by their name.")
    crawl_host_seconds: Wait = declare(1.0, "The pause between two visits to one host, whichever worker makes them.")
    crawl_robots: str = declare("web", "Lanes on which robots.txt is obeyed, with commas between; `none` for none.")
    crawl_user_agent: Annotated[str, Field(min_length=1, max_length=200)] | None = declare(
        None, "The user agent of visits. Unset: mistnet and its version."
    )
    crawl_timeout_seconds: Seconds = declare(20.0, "How long one page may take.")
    crawl_largest_megabytes: float = declare(5.0, "Larger pages are not read, compressed or not.", gt=0, le=100)
    crawl_read_seconds: float = declare(
        5.0, "How much CPU time reading one page may take. A page that takes more is unreadable.", ge=0.1, le=600
    )
    crawl_read_megabytes: int = declare(
        512, "How much memory reading one page may take. A page that takes more is unreadable.", ge=50, le=100_000
    )
    crawl_readers: int = declare(
        2, "How many pages a process reads at the same time, each in a child process of its own.", ge=1, le=64
    )
    crawl_hops: int = declare(5, "How many redirects are followed, at most.", ge=0, le=20)
    crawl_ports: str = declare("80,443", "Ports that pages may be fetched from, with commas between.")
    crawl_allow_hosts: Names = declare([], "Hosts (or host:port) of private networks that may be visited.")
    crawl_via: dict[str, str] = declare(
        {}, "For simulations: hosts (or *) and the address on this machine that answers for them."
    )
    crawl_cache: bool = declare(False, "Whether visited pages are cached, and fetched again only if they changed.")
    crawl_cache_seconds: Seconds = declare(
        3_600.0,
        "How long a cached page is used without asking the site, in seconds.",
        env=["MISTNET_CRAWL_CACHE_SECONDS", "CACHE_TTL_SECONDS"],
    )
    crawl_keep_pages: bool = declare(False, "Whether each page is stored whole, compressed, with its visit.")
    crawl_every_hours: Hours | None = declare(
        None, "How often products are visited again. Unset: only by `mistnet products refresh`."
    )
    crawl_second_look_seconds: Pause = declare(600.0, "The pause before an implausible price is checked again.")
    price_watch_percent: Annotated[float, Field(ge=0.01, le=1_000_000)] | None = declare(
        None, "Watch every product for prices that change by more than this. Unset: only what you watch."
    )
    crawl_shopee_api: Literal["item", "pdp"] = declare(
        "item", "Which of Shopee's own answers is read: the older item/get or the newer pdp/get_pc."
    )
    price_sources: Path | None = declare(
        None, "A TOML file that describes further shops to ask for prices. Unset: there are none."
    )
    price_cache: bool = declare(True, "Whether price answers are cached.", env=["MISTNET_PRICE_CACHE", "CACHE_ENABLED"])
    price_cache_seconds: Seconds = declare(
        3_600.0,
        "How long price answers are cached, in seconds.",
        env=["MISTNET_PRICE_CACHE_SECONDS", "CACHE_TTL_SECONDS"],
    )
    items_every_hours: Hours = declare(24.0, "How often items are priced, if they have no interval of their own.")
    ebay_client_id: SecretStr | None = declare(
        None, "Your application's name at eBay (App ID). Unset: eBay's API is not called.", min_length=8
    )
    ebay_client_secret: SecretStr | None = declare(
        None, "Your application's secret (Cert ID), which tokens are fetched with.", min_length=8
    )
    ebay_base_url: str = declare("https://api.ebay.com", "The URL of eBay's API.")
    ebay_marketplace: str = declare(
        "EBAY_US", "Which of eBay's marketplaces is searched, such as EBAY_DE.", pattern="^EBAY_[A-Z]{2,6}$"
    )
    ebay_rate_per_minute: Rate = declare(
        60.0, "How many calls a minute are made to eBay's API, by all workers together."
    )
    ebay_timeout_seconds: Seconds = declare(60.0, "How long one call to eBay's API may take.")
    ebay_listings: int = declare(
        200, "How many listings are read for an item, at most; 200 are one call.", ge=1, le=10_000
    )
    ebay_filter: Annotated[str, Field(min_length=1, max_length=1_000)] | None = declare(
        None, "An additional filter for eBay, as its documentation writes it."
    )
    ebay_sold: bool = declare(
        False, "Whether completed sales are fetched too. eBay must have granted you Marketplace Insights."
    )
    breaker_failures: Count = declare(5, "How many failures in a row open the breaker of a source.")
    breaker_seconds: Seconds = declare(300.0, "How long it stays open before one call tests the source.")
    second_look_seconds: Pause = declare(30.0, "The pause before the end of a history is confirmed.")
    batch_fill_seconds: Pause = declare(
        30.0, "How long walks wait for others to fill a batch with; users by id wait three times as long."
    )
    relook_days: float = declare(7.0, "How often accounts that cannot be collected are checked again.", gt=0, le=3650)
    batch_users_by_ids_max: int = declare(100, "How many users are fetched by id in one call, at most.", ge=1, le=100)
    batch_posts_by_ids_max: int = declare(50, "How many posts are asked for by id in one call, at most.", ge=1, le=100)
    ifttt_secret: SecretStr | None = declare(
        None, "The secret that IFTTT sends with new followers. Unset: its webhook is off.", min_length=16
    )
    ifttt_target_id: Annotated[int, Field(gt=0)] | None = declare(
        None, "The user id of the account whose new followers IFTTT reports."
    )
    host: str = declare("127.0.0.1", "The address the API and the dashboard listen on.")
    port: int = declare(8470, "Their port; 0 takes a free one.", ge=0, le=65_535)
    socket: Path | None = declare(
        None, "A Unix socket to listen on in place of `host` and `port`; only its owner can open it."
    )
    http_header_seconds: Seconds = declare(10.0, "How long the head of a request may take to arrive.")
    http_body_seconds: Seconds = declare(120.0, "How long the body of a request may take to arrive.")
    http_body_bytes_per_second: int = declare(
        500, "A request whose body arrives slower than this is refused.", ge=0, le=1_000_000
    )
    http_idle_seconds: Seconds = declare(
        15.0, "How long a connection may stay idle, or leave an answer unread, before it is closed."
    )
    http_connections: int = declare(
        512,
        "How many connections may be open at once; never more than half of the open files allowed.",
        ge=2,
        le=100_000,
    )
    admin_token: SecretStr | None = declare(
        None, "A token that may do everything; others are made by `mistnet tokens add`.", min_length=16
    )
    trusted_proxies: Names = declare(
        [], "Addresses or networks of proxies whose forwarded client address is trusted; `unix`: the socket."
    )
    session_hours: float = declare(12.0, "How long a log-in to the dashboard lasts.", gt=0, le=8_760)
    run_wait_minutes: float = declare(
        60.0, "A run without progress for this long, and without a worker on it, ends as failed.", gt=0, le=525_600
    )
    run_hours: Hours = declare(24.0, "How long finished runs are kept.")
    scheduler_enabled: bool = declare(
        True,
        "Whether `up` and `serve` check accounts for new posts.",
        env=["MISTNET_SCHEDULER_ENABLED", "SCRAPER_ENABLED"],
    )
    groups: dict[str, GroupSettings] = declare(
        {}, "Schedules for groups of accounts; `default` is for all others, every 15 minutes if not given."
    )
    leader_lease_seconds: float = declare(
        30.0, "How long the scheduling process leads without renewing its lease.", ge=1, le=3600
    )
    auto_summarization_enabled: bool = declare(
        False,
        "Whether each run is followed by an event that asks for a summary of its new posts.",
        env=["MISTNET_AUTO_SUMMARIZATION_ENABLED", "AUTO_SUMMARIZATION_ENABLED"],
    )
    webhooks: dict[str, WebhookSettings] = declare({}, "Receivers of events, by name.")
    alert_urls: Addresses = declare([], "Further receivers of alerts: Apprise URLs. Needs mistnet[apprise].")
    alert_due_minutes: Seconds = declare(30.0, "Due work that waits longer than this raises an alert.")
    alert_breaker_minutes: Seconds = declare(
        15.0, "A source whose breaker is open for longer than this raises an alert."
    )
    broker_url: SecretStr | None = declare(
        None, "RabbitMQ, for lanes that are dispatched over it: amqp://… or amqps://… Needs mistnet[amqp]."
    )
    broker_ca_file: Path | None = declare(
        None, "The CA that signed RabbitMQ's certificate. Unset: those of the system."
    )
    broker_cert_file: Path | None = declare(None, "The client certificate for RabbitMQ.")
    broker_key_file: Path | None = declare(None, "The key of that certificate, if it is in a file of its own.")
    amqp_lanes: Names = declare([], "Lanes whose jobs go to workers over RabbitMQ.")
    amqp_queue_type: Literal["quorum", "classic"] = declare("quorum", "The type of the queues in RabbitMQ.")
    amqp_prefetch: int = declare(5, "How many messages of a lane a worker holds at most.", ge=1, le=10_000)
    amqp_window: int = declare(
        1_000, "How many jobs of a lane are published to RabbitMQ at a time; the others wait.", ge=1, le=1_000_000
    )
    lane_priorities: dict[str, int] = declare(
        {}, "Priorities of lanes for a worker's messages; the highest number first, 0 if not named."
    )
    republish_seconds: Seconds = declare(
        600.0, "After this long without a claim the message of a job counts as lost and is sent again."
    )
    otel_endpoint: str | None = declare(
        None, "The URL that traces are sent to (OTLP over HTTP). Unset: no traces. Needs mistnet[otel]."
    )
    log_format: Literal["text", "json"] = declare("text", "The format of log lines.")
    log_level: Literal["TRACE", "DEBUG", "INFO", "WARNING", "ERROR"] = declare(
        "INFO", "The least important log line that is written."
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

    @field_validator("x_base_url", "threads_base_url", "ebay_base_url")
    @classmethod
    def _are_base_urls(cls, given: str) -> str:
        require_address(given, "https", "http")
        return given.rstrip("/")

    @field_validator("crawl_lanes")
    @classmethod
    def _are_lanes(cls, given: list[str]) -> list[str]:
        return list(dict.fromkeys(map(_lane, given)))

    @field_validator("crawl_robots")
    @classmethod
    def _are_lanes_or_none(cls, given: str) -> str:
        listed = [each.strip() for each in given.split(",") if each.strip() and each.strip() != "none"]
        return ",".join(map(_lane, listed)) or "none"

    @field_validator("crawl_ports")
    @classmethod
    def _are_ports(cls, given: str) -> str:
        listed = [each.strip() for each in given.split(",") if each.strip()]
        if not listed or not all(each.isdecimal() and 0 < int(each) <= LAST_PORT for each in listed):
            raise ValueError("write port numbers with commas between, such as 80,443")
        return ",".join(listed)

    @field_validator("crawl_via")
    @classmethod
    def _are_local(cls, given: dict[str, str]) -> dict[str, str]:
        for base in given.values():
            require_address(base, "http")
            if urlsplit(base).hostname not in ("127.0.0.1", "localhost", "::1"):
                raise ValueError(f"{base[:80]!r} is not on this machine; write http://127.0.0.1:PORT")
        return given

    @field_validator("crawl_rates")
    @classmethod
    def _are_of_lanes(cls, given: dict[str, float]) -> dict[str, float]:
        return {_lane(name): rate for name, rate in given.items()}

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, given: list[str]) -> list[str]:
        networks = []
        for each in map(str.lower, given):
            try:
                network = None if each == "unix" else ip_network(each)
            except ValueError:
                raise ValueError(
                    f"{each[:60]!r} is neither an address nor a network; "
                    f"write 127.0.0.1, 10.0.0.0/8, 2001:db8::/32 or unix"
                ) from None
            if network and network.prefixlen == 0:
                raise ValueError(f"{each} is every address there is; name the addresses of your proxies")
            networks.append(str(network or each))
        return networks

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
