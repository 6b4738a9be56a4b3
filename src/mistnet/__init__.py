"""mistnet collects social accounts durably.

These names are the public interface for job kinds of your own (docs/engine-alone.md) and shops (docs/adding-a-shop.md).
Everything else is internal and may change.
"""

from typing import TYPE_CHECKING

from mistnet.kit.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.app import App, open_app
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
else:  # `mistnet --version` must load none of it
    __getattr__ = lazy_names(
        __name__,
        {
            "App": "app",
            "Args": "queue.model",
            "Continue": "queue.model",
            "Done": "queue.model",
            "Fail": "queue.model",
            "Job": "queue.model",
            "JobClass": "queue.model",
            "JobId": "queue.model",
            "Kind": "queue.kinds",
            "KindName": "queue.model",
            "Lane": "queue.model",
            "LinkKind": "shops.model",
            "LinkName": "shops.shop",
            "NewJob": "queue.model",
            "NotNow": "queue.errors",
            "Outcome": "queue.model",
            "PageRules": "shops.shop",
            "Permanent": "queue.errors",
            "Plugin": "queue.plugins",
            "Retry": "queue.model",
            "Settings": "settings",
            "Shop": "shops.shop",
            "ShopPlugin": "shops.plugins",
            "Snooze": "queue.model",
            "Temporary": "queue.errors",
            "Write": "queue.model",
            "Writer": "queue.store.writes",
            "batched": "queue.kinds",
            "load_settings": "settings",
            "open_app": "app",
            "single": "queue.kinds",
        },
    )

__version__ = "0.1.0"
__all__ = [
    "App",
    "Args",
    "Continue",
    "Done",
    "Fail",
    "Job",
    "JobClass",
    "JobId",
    "Kind",
    "KindName",
    "Lane",
    "LinkKind",
    "LinkName",
    "NewJob",
    "NotNow",
    "Outcome",
    "PageRules",
    "Permanent",
    "Plugin",
    "Retry",
    "Settings",
    "Shop",
    "ShopPlugin",
    "Snooze",
    "Temporary",
    "Write",
    "Writer",
    "__version__",
    "batched",
    "load_settings",
    "open_app",
    "single",
]
