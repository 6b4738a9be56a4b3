"""From text to links to names: URLs and codes are found, unwrapped and given their one name. No I/O."""

from mistnet.links.codes import Code, find_codes, find_title
from mistnet.links.finding import Found, find_urls
from mistnet.links.hops import inline_target, may_follow
from mistnet.links.mentions import Examined, Refusal, examine, links_of, links_to_keep
from mistnet.links.naming import canonical, fetchable
from mistnet.links.refused import Refused
from mistnet.links.wrappers import unwrap

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
