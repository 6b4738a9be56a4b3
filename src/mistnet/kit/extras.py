"""Packages that a plain installation leaves out: which extra brings each, and whether it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from mistnet.kit.errors import MissingExtra

EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    "amqp": ("aio_pika", "aio-pika"),
    "apprise": ("apprise", "Apprise"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "OpenTelemetry"),
    "parquet": ("pyarrow", "PyArrow"),
    "postgresql": ("asyncpg", "asyncpg"),
}
"""Each extra of pyproject.toml, the module that shows that it is installed, and what people call it."""


def require_extra(extra: str, what: str) -> None:
    """Refuse something that needs an extra before it begins, so that no ImportError stops it half-way."""
    module, name = EXTRAS[extra]
    if not _is_installed(module):
        raise MissingExtra(extra, what, name)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
