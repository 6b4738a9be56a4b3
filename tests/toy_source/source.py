"""Declares the toy platform as a source of mistnet."""

from __future__ import annotations

import os

from mistnet import KeyLabel, Plugin, Source, SourceContext
from tests.toy_source.client import ToyClient


def toy_source(context: SourceContext) -> Source:
    token = os.environ.get("TOY_TOKEN")
    governor = context.governor("toy", {KeyLabel("token"): token} if token else {}, rate_per_minute=60_000, burst=20)
    http = context.http("toy", os.environ.get("TOY_URL", "https://toy.example"))
    return Source(
        governor=governor,
        platform="toy",
        client=ToyClient(http, governor, context.database.clock),
        parts=[http.opened],
        setup="set TOY_TOKEN",
    )


def plugin() -> Plugin:
    return Plugin(sources=[toy_source])
