"""Reads availability from schema.org terms, from shops' own terms, and from visible text."""

import re
from typing import Final

from mistnet.shops.model import Availability

_TERMS: Final = {
    "instock": Availability.IN_STOCK,
    "available": Availability.IN_STOCK,
    "instoreonly": Availability.IN_STOCK,
    "onlineonly": Availability.IN_STOCK,
    "in": Availability.IN_STOCK,
    "1": Availability.IN_STOCK,
    "true": Availability.IN_STOCK,
    "yes": Availability.IN_STOCK,
    "availablefororder": Availability.IN_STOCK,
    "limitedavailability": Availability.LIMITED,
    "limited": Availability.LIMITED,
    "outofstock": Availability.OUT_OF_STOCK,
    "oos": Availability.OUT_OF_STOCK,
    "soldout": Availability.OUT_OF_STOCK,
    "unavailable": Availability.OUT_OF_STOCK,
    "notavailable": Availability.OUT_OF_STOCK,
    "reserved": Availability.OUT_OF_STOCK,
    "0": Availability.OUT_OF_STOCK,
    "false": Availability.OUT_OF_STOCK,
    "preorder": Availability.PREORDER,
    "presale": Availability.PREORDER,
    "pending": Availability.PREORDER,
    "backorder": Availability.BACKORDER,
    "discontinued": Availability.DISCONTINUED,
}
_OUT: Final = re.compile(
    r"""sold\s*out|out\s+of\s+stock|currently\s+unavailable|not\s+(?:currently\s+)?available
        |no\s+longer\s+available|temporarily\s+unavailable|unavailable
    | ausverkauft|nicht\s+(?:auf\s+lager|verfügbar|vorrätig|lieferbar)|derzeit\s+nicht|épuisé|indisponible
        |rupture\s+de\s+stock|non\s+disponibile|esaurito
    | agotado|sin\s+stock|no\s+disponible|esgotado|indispon[ií]vel|fora\s+de\s+estoque|uitverkocht
        |niet\s+(?:op\s+voorraad|leverbaar)|slutsåld|slut\s+i\s+lager|utsolgt|udsolgt|loppu
    | brak\s+w\s+magazynie|niedostępn|wyprzedan|vyprodáno|není\s+skladem|stoc\s+epuizat|indisponibil
        |нет\s+в\s+наличии|немає\s+в\s+наявності|rasprodano|ni\s+na\s+zalogi|pole\s+saadaval|läbi\s+müüdud|otsas
    | tükendi|stokta\s+yok|εξαντλήθηκε|غير\s+متوفر|نفذت|אזל
    | 售完|售罄|缺[货貨]|补[货貨]中|補[货貨]中|已下架|暫無庫存|暂时缺货|無庫存|在庫切れ|在庫なし|売り切れ|売切れ
        |품절|일시품절
    | stok\s+habis|habis\s+terjual|hết\s+hàng|สินค้าหมด|หมดสต็อก|habis|ubos\s+na""",
    re.VERBOSE | re.IGNORECASE,
)
_PREORDER: Final = re.compile(
    r"pre-?order|預購|预售|預售|予約受付|đặt\s+trước|พรีออเดอร์|vorbestell|précommand", re.IGNORECASE
)
_IN: Final = re.compile(
    r"""(?<!not\s)\bin\s+stock|available\s+(?:now|to\s+order|online)|(?:^|\s)available(?:\s|$)|add\s+to\s+(?:cart
        |bag|basket|trolley)|buy\s+(?:it\s+)?now|in\s+den\s+(?:warenkorb|einkaufswagen)|auf\s+lager
        |sofort\s+lieferbar|lieferbar
    | en\s+stock|ajouter\s+au\s+panier|disponible|disponibile|aggiungi\s+al\s+carrello|añadir\s+(?:al\s+carrito
        |a\s+la\s+cesta)|agregar\s+al\s+carr|comprar|adicionar\s+ao\s+carrinho|em\s+estoque|disponível
        |op\s+voorraad|in\s+winkelwagen
    | i\s+lager|på\s+lager|lägg\s+i\s+varukorg|lisää\s+ostoskoriin|do\s+koszyka|w\s+magazynie|dostępn|skladem
        |do\s+košíku|în\s+stoc|adaug[aă]\s+în\s+coș|в\s+наличии|в\s+корзину|купить|в\s+наявності
        |dodaj\s+v\s+košarico|na\s+zalogi|lisa\s+ostukorvi|pievienot\s+grozam|ielikt\s+grozā
    | sepete\s+ekle|stokta|προσθήκη\s+στο\s+καλάθι|أضف|متوفر
    | 加入[购購][物买買]?[车車]|加入購物袋|立即[购購][买買]|立刻購買|直接購買|马上抢|现货|現貨|有[货貨]
        |カートに入れる|在庫あり|장바구니
    | masukkan\s+keranjang|beli\s+sekarang|tambah(?:kan)?\s+ke\s+(?:troli|keranjang)|thêm\s+vào\s+giỏ|mua\s+ngay
        |còn\s+hàng|เพิ่ม(?:ไปยัง|ใน)?รถเข็น|ซื้อเลย|ซื้อสินค้า|มีสินค้า""",
    re.VERBOSE | re.IGNORECASE,
)


def availability_term(written: object) -> Availability | None:
    """The availability of a term such as `https://schema.org/InStock`, `in stock` or `oos`."""
    name = str(written).strip().rstrip("/").rpartition("/")[2].rpartition("#")[2]
    term = re.sub(r"[^a-z0-9]", "", name.lower())
    if found := _TERMS.get(term):
        return found
    return availability_words(str(written)) if len(str(written)) < 60 else None


def availability_words(text: str) -> Availability | None:
    """The availability in a short text. Denials come first: they often contain the word that they deny."""
    if _OUT.search(text):
        return Availability.OUT_OF_STOCK
    if _PREORDER.search(text):
        return Availability.PREORDER
    return Availability.IN_STOCK if _IN.search(text) else None


def invites_to_buy(text: str) -> bool:
    return bool(_IN.search(text)) and not _OUT.search(text)
