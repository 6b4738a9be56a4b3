"""mistnet collects social accounts durably.

`mistnet.open` reads what was collected (docs/analyse.md).
The other names are the public interface for job kinds of your own (docs/engine-alone.md), shops (docs/adding-a-shop.md)
and social sources (docs/adding-a-source.md). Everything else is internal and may change.
"""

from typing import TYPE_CHECKING

from mistnet.kit import lazy_names

if TYPE_CHECKING:
    from mistnet.app import App, open_app
    from mistnet.data.reading import Data, Rows, open  # noqa: A004 (`mistnet.open` reads well)
    from mistnet.governor.errors import BadRequest, BrokenAnswer, RateLimited, SourceDown, SourceRefused
    from mistnet.governor.model import CallPurpose, Costs, Gate, KeyLabel
    from mistnet.governor.source import Source, SourceContext
    from mistnet.kit.clock import Clock
    from mistnet.kit.transport import HttpAnswer, HttpRequest, Transport, Unanswered
    from mistnet.queue.errors import NotNow, Permanent, Temporary
    from mistnet.queue.kinds import Kind, batched, single
    from mistnet.queue.model import (
        Args,
        Continue,
        Done,
        Fail,
        Job,
        JobClass,
        JobId,
        KindName,
        Lane,
        NewJob,
        Outcome,
        Retry,
        Snooze,
        Write,
    )
    from mistnet.queue.plugins import Plugin
    from mistnet.queue.store.writes import Writer
    from mistnet.settings import Settings, load_settings
    from mistnet.shops.model import LinkKind
    from mistnet.shops.plugins import ShopPlugin
    from mistnet.shops.shop import LinkName, PageRules, Shop
    from mistnet.social.jobs.args import suggestion
    from mistnet.social.model import (
        Detail,
        Gathered,
        LinkMention,
        Media,
        Metrics,
        Page,
        Platform,
        Post,
        PostId,
        Reference,
        SocialSource,
        Span,
        Unreadable,
        User,
        UserId,
    )
else:  # `mistnet --version` must load none of it
    __getattr__ = lazy_names(
        __name__,
        {
            "App": "app",
            "Args": "queue.model",
            "BadRequest": "governor.errors",
            "BrokenAnswer": "governor.errors",
            "CallPurpose": "governor.model",
            "Clock": "kit.clock",
            "Continue": "queue.model",
            "Costs": "governor.model",
            "Data": "data.reading",
            "Detail": "social.model",
            "Done": "queue.model",
            "Fail": "queue.model",
            "Gate": "governor.model",
            "Gathered": "social.model",
            "HttpAnswer": "kit.transport",
            "HttpRequest": "kit.transport",
            "Job": "queue.model",
            "JobClass": "queue.model",
            "JobId": "queue.model",
            "KeyLabel": "governor.model",
            "Kind": "queue.kinds",
            "KindName": "queue.model",
            "Lane": "queue.model",
            "LinkKind": "shops.model",
            "LinkMention": "social.model",
            "LinkName": "shops.shop",
            "Media": "social.model",
            "Metrics": "social.model",
            "NewJob": "queue.model",
            "NotNow": "queue.errors",
            "Outcome": "queue.model",
            "Page": "social.model",
            "PageRules": "shops.shop",
            "Permanent": "queue.errors",
            "Platform": "social.model",
            "Plugin": "queue.plugins",
            "Post": "social.model",
            "PostId": "social.model",
            "RateLimited": "governor.errors",
            "Reference": "social.model",
            "Retry": "queue.model",
            "Rows": "data.reading",
            "Settings": "settings",
            "Shop": "shops.shop",
            "ShopPlugin": "shops.plugins",
            "Snooze": "queue.model",
            "SocialSource": "social.model",
            "Source": "governor.source",
            "SourceContext": "governor.source",
            "SourceDown": "governor.errors",
            "SourceRefused": "governor.errors",
            "Span": "social.model",
            "Temporary": "queue.errors",
            "Transport": "kit.transport",
            "Unanswered": "kit.transport",
            "Unreadable": "social.model",
            "User": "social.model",
            "UserId": "social.model",
            "Write": "queue.model",
            "Writer": "queue.store.writes",
            "batched": "queue.kinds",
            "load_settings": "settings",
            "open": "data.reading",
            "open_app": "app",
            "single": "queue.kinds",
            "suggestion": "social.jobs.args",
        },
    )

__version__ = "0.1.0"
__all__ = [
    "App",
    "Args",
    "BadRequest",
    "BrokenAnswer",
    "CallPurpose",
    "Clock",
    "Continue",
    "Costs",
    "Data",
    "Detail",
    "Done",
    "Fail",
    "Gate",
    "Gathered",
    "HttpAnswer",
    "HttpRequest",
    "Job",
    "JobClass",
    "JobId",
    "KeyLabel",
    "Kind",
    "KindName",
    "Lane",
    "LinkKind",
    "LinkMention",
    "LinkName",
    "Media",
    "Metrics",
    "NewJob",
    "NotNow",
    "Outcome",
    "Page",
    "PageRules",
    "Permanent",
    "Platform",
    "Plugin",
    "Post",
    "PostId",
    "RateLimited",
    "Reference",
    "Retry",
    "Rows",
    "Settings",
    "Shop",
    "ShopPlugin",
    "Snooze",
    "SocialSource",
    "Source",
    "SourceContext",
    "SourceDown",
    "SourceRefused",
    "Span",
    "Temporary",
    "Transport",
    "Unanswered",
    "Unreadable",
    "User",
    "UserId",
    "Write",
    "Writer",
    "__version__",
    "batched",
    "load_settings",
    "open",
    "open_app",
    "single",
    "suggestion",
]
