"""From text to links to names: URLs and codes are found, unwrapped and given their one name. No I/O."""

from typing import TYPE_CHECKING

from mistnet.lazy import lazy_names

if TYPE_CHECKING:
    from mistnet.links.codes import Code, find_codes, find_title
    from mistnet.links.finding import Found, find_urls
    from mistnet.links.hops import inline_target, may_follow
    from mistnet.links.mentions import Examined, Refusal, examine, links_of, links_to_keep
    from mistnet.links.naming import canonical, fetchable
    from mistnet.links.refused import Refused
    from mistnet.links.wrappers import unwrap
else:  # what reads pages and names links takes long to load, and most commands do neither
    __getattr__ = lazy_names(
        __name__,
        {
            "Code": "codes",
            "Examined": "mentions",
            "Found": "finding",
            "Refusal": "mentions",
            "Refused": "refused",
            "canonical": "naming",
            "examine": "mentions",
            "fetchable": "naming",
            "find_codes": "codes",
            "find_title": "codes",
            "find_urls": "finding",
            "inline_target": "hops",
            "links_of": "mentions",
            "links_to_keep": "mentions",
            "may_follow": "hops",
            "unwrap": "wrappers",
        },
    )

__all__ = [
    "Code",
    "Examined",
    "Found",
    "Refusal",
    "Refused",
    "canonical",
    "examine",
    "fetchable",
    "find_codes",
    "find_title",
    "find_urls",
    "inline_target",
    "links_of",
    "links_to_keep",
    "may_follow",
    "unwrap",
]
