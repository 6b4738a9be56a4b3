"""The key of a page by its URL alone: as browsers read it, parameters sorted, places in it and trackers left out."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from urllib.parse import unquote_plus

from w3lib.url import canonicalize_url

from mistnet.links.address import Address

LONGEST_KEY: Final = 2_000
_DIGEST: Final = "?sha256="
# A fragment is a place in a page, unless the page is a program that shows another thing for each.
_ROUTES: Final = ("/", "!")
# w3lib takes these for nothing and drops them.
_EMPTY_PARAMETERS: Final = re.compile(r";+$")
_HALF_ESCAPE: Final = re.compile(r"%[0-9A-F]?$")
# Parameters that say who sent the reader, never what he reads.
_TRACKERS: Final = frozenset(
    (
        *(
            "fbclid",
            "gclid",
            "gclsrc",
            "dclid",
            "gbraid",
            "wbraid",
            "msclkid",
            "twclid",
            "ttclid",
            "yclid",
            "li_fat_id",
        ),
        *("igsh", "igshid", "xmt", "slof", "mibextid", "__tn__", "_openstat", "vero_id", "vero_conv", "wickedid"),
        *("_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "hsctatracking", "mkt_tok", "oly_anon_id", "oly_enc_id"),
        *("spm", "scm", "pvid", "_ga", "_gl", "srsltid", "epik", "rb_clickid", "s_cid", "ml_subscriber"),
        *("smtt", "sp_atk", "xptdk", "uls_trackid", "gads_t_sig", "mmp_pid", "_trksid", "_trkparms", "ref_src"),
    )
)
_FAMILIES: Final = ("utm_", "mc_", "pk_", "mtm_", "hsa_", "stm_")


def key(address: Address) -> str:
    """Equal for the same page, short enough for an index, and its own key again."""
    query = _without_trackers(address.query)
    port = f":{address.port}" if address.port else ""
    path = _EMPTY_PARAMETERS.sub(lambda found: "%3B" * len(found[0]), address.path)
    bare = f"{address.scheme}://{address.host}{port}{path}" + (f"?{query}" if query else "")
    if address.fragment.startswith(_ROUTES):
        bare = f"{bare}#{address.fragment}"
    return _fitting(str(canonicalize_url(bare, keep_blank_values=True, keep_fragments=True)))


def _without_trackers(query: str) -> str:
    if not query:
        return ""
    return "&".join(part for part in query.split("&") if part and not _tracks(part.partition("=")[0]))


def _tracks(name: str) -> bool:
    plain = (unquote_plus(name) if "%" in name or "+" in name else name).casefold()
    return plain in _TRACKERS or plain.startswith(_FAMILIES)


def _fitting(url: str) -> str:
    """PostgreSQL indexes no more than about 2,700 bytes: of a longer URL the head and a digest of the whole."""
    if len(url) <= LONGEST_KEY:
        return url
    digest = sha256(url.encode()).hexdigest()
    head = url.partition("#")[0].partition("?")[0][: LONGEST_KEY - len(_DIGEST) - len(digest)]
    return f"{_HALF_ESCAPE.sub('', head)}{_DIGEST}{digest}"
