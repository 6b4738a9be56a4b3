"""The one name of an observation: the same listing told twice has the same one, whatever its URL carries along."""

from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from hashlib import sha256
from typing import Final
from unicodedata import normalize
from urllib.parse import urlsplit

from mistnet.domain.products import PriceKind

_DIGITS: Final = 16
_LONGEST: Final = 200
_BETWEEN: Final = "\x1f"
_PRECISION: Final = 200


def dedupe_key(
    *, external_id: str | None, url: str, title: str, amount: Decimal, observed_at: datetime, kind: PriceKind
) -> str:
    """The source's own id if it has one, else a hash of what was seen on that day (UTC)."""
    if external_id and external_id.strip():
        return f"ext_{_short(external_id.strip())}"
    day = observed_at.astimezone(UTC).date().isoformat()
    parts = (_plain_url(url), plain_text(title), _cents(amount), day, kind.value)
    return f"hash_{_hashed(_BETWEEN.join(parts))[:_DIGITS]}"


def plain_text(text: str) -> str:
    """One spelling for all cases, widths and spaces."""
    one_case = normalize("NFKC", text).upper().casefold()
    return " ".join(normalize("NFKC", one_case).split())


def _short(external_id: str) -> str:
    """An id too long to be one, and to be indexed, goes by its hash."""
    return external_id if len(external_id) <= _LONGEST else _hashed(external_id)


def _cents(amount: Decimal) -> str:
    with localcontext(prec=_PRECISION):
        return f"{(amount * 100).quantize(Decimal(1), ROUND_HALF_EVEN):f}"


def _plain_url(url: str) -> str:
    """Without query, fragment and the slash at the end."""
    spelt = plain_text(url).replace(" ", "")
    try:
        parts = urlsplit(spelt)
    except ValueError:  # a broken address is still one
        return spelt.partition("#")[0].partition("?")[0].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")


def _hashed(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()
