"""From price text and pages to offers and valuations. Pure."""

from mistnet.pricing.pages import read_page
from mistnet.pricing.plausibility import Earlier, doubt
from mistnet.pricing.price_text import NoPrice, ParsedPrice, parse_price
from mistnet.pricing.shopee import read_shopee
from mistnet.pricing.taobao import read_taobao

__all__ = ["Earlier", "NoPrice", "ParsedPrice", "doubt", "parse_price", "read_page", "read_shopee", "read_taobao"]
