"""From text to links to names: URLs and codes are found, unwrapped and given their canonical name. No I/O."""

from typing import TYPE_CHECKING

from mistnet.kit import lazy_names

if TYPE_CHECKING:
    from mistnet.shops.links.address import RefusedUrl
    from mistnet.shops.links.finding import find_urls
    from mistnet.shops.links.mentions import links_to_keep
    from mistnet.shops.links.naming import canonical_link, fetchable_url, inline_target, may_follow
else:  # it takes long to load, and most commands do not use it
    __getattr__ = lazy_names(
        __name__,
        {
            **dict.fromkeys(("canonical_link", "fetchable_url", "inline_target", "may_follow"), "naming"),
            "RefusedUrl": "address",
            "find_urls": "finding",
            "links_to_keep": "mentions",
        },
    )

__all__ = ["RefusedUrl", "canonical_link", "fetchable_url", "find_urls", "inline_target", "links_to_keep", "may_follow"]
