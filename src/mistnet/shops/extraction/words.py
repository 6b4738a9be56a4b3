"""Words of many languages: around a number, about stock, and those of a title that distinguish products."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final
from unicodedata import normalize

from mistnet.shops.model import Availability

_MULTIPLES: Final[Mapping[str, int]] = {
    "百": 2,
    "千": 3, "仟": 3, "천": 3, "พัน": 3, "ribu": 3, "rb": 3, "k": 3, "nghìn": 3, "ngàn": 3, "tys.": 3, "tys": 3,
    "тыс.": 3, "тыс": 3, "mil": 3, "tsd.": 3, "tsd": 3, "thousand": 3,
    "万": 4, "萬": 4, "만": 4, "หมื่น": 4, "w": 4,
    "แสน": 5, "lakh": 5, "lakhs": 5, "lac": 5,
    "百万": 6, "百萬": 6, "ล้าน": 6, "juta": 6, "jt": 6, "triệu": 6, "tr": 6, "million": 6, "mio": 6, "mio.": 6,
    "mln": 6, "mln.": 6, "млн": 6, "млн.": 6, "m": 6,
    "crore": 7, "crores": 7, "千万": 7, "千萬": 7,
    "億": 8, "亿": 8, "억": 8,
    "tỷ": 9, "tỉ": 9, "miliar": 9, "billion": 9, "bn": 9,
}  # fmt: skip
_WORDS: Final = "|".join(re.escape(each) for each in sorted(_MULTIPLES, key=len, reverse=True) if each not in "kmw")
# `k`, `M` and `w` are multiples only where they touch the number; elsewhere they are units or currencies.
_MULTIPLE: Final = re.compile(
    rf"(?:(?P<short>[kKM]|m(?=\s?(?:VN[DĐ]|₫|đ))|[wW](?=[+＋一-鿿]))|\s?(?P<word>(?i:{_WORDS})))(?:(?![A-Za-zÀ-ỹ])|(?<=[一-鿿]))"
)


def multiple_after(text: str, place: int) -> tuple[int, Decimal] | None:
    """The multiple written behind a number: where it ends, and by how much it multiplies."""
    found = _MULTIPLE.match(text[place : place + 12])
    if not found:
        return None
    written = (found["short"] or found["word"]).lower()
    return place + found.end(), Decimal(10) ** _MULTIPLES[written]


_DAYS: Final = (
    r"days?|tagen?|jours|giorni|d[ií]as|dag(?:ar(?:na)?|ene|er|en|e)?|p[äa]iv[äa]n?|dni(?:ach)?|dn[ůí]|dnech|dňoch|nap(?:os|ban|on|ja)?"
    r"|zile(?:le)?|gün(?:ün|de)?|dana|dienų|dienu|dien[āa]s|päeva|дн(?:ей|я|ів|і)|дни|дена|ημ[εέ]ρ(?:ες|ών|ων)|ימים|يوم(?:ا|ًا)?|hari|ngày"
)
# EU law has a shop that lowers a price say the lowest of the last 30 days.
_LAST: Final = r"(?:[^\W\d_]{3,12}\s)?"
LAST_DAYS: Final = re.compile(rf"(?<!\d)30\W{{0,3}}(?:{_LAST}(?:{_DAYS})(?!\w)|tage-|[日天일]|วัน)", re.IGNORECASE)
# Right of a number, perhaps behind a plus sign.
COUNTED: Final = re.compile(
    rf"""^\s?[+＋]?\s?(?:
      %|percent\b|折|\bx\b(?!\s*[^\d\s]{{0,4}}\s*\d)
    | 人|位|笔|筆|条|條|則|则|个月|個月|期|次|星|天|日(?!元|圓|圆|幣|币)|年|月|小时|小時|分鐘|分钟|粉丝|粉絲|评|評
        |利率|개|명|건|次|好评|好評|已售|售出|付款|成交|收藏|庫存|库存|赞|讚
    | 件(?!装|裝)|個(?!人)|个(?!人)|隻|支|入|盒|包|组|組|双|雙|台(?!幣|币)|部|張|张|本|瓶|罐|片
    | (?i:pcs?|pieces?|items?|units?|orders?|bids?|watch(?:ers|ing)|views?|likes?|followers?|people|persons?
        |customers?|left|available|in\s+stock)\b
    | (?i:sold(?!\s+for)|reviews?|ratings?|votes?|stars?|out\s+of\s+\d)\b
    | (?i:terjual|ulasan|penilaian|stok|barang|produk|pengikut|unit|rating|bulan|bln|hari)\b
    | (?i:đã\s+bán|đánh\s+giá|sản\s+phẩm|lượt|người|tháng|ngày|đơn)
    | (?:ขาย(?:แล้ว|ได้)?|รีวิว|ชิ้น|คน|รายการ|เดือน|วัน|การให้คะแนน|คะแนน|ครั้ง)
    | (?i:vendid[oa]s?|avalia(?:ções|ção)|unidades?|opiniones|reseñas|meses|dias|días|pessoas|compras)\b
    | (?i:nabili|nabenta|naibenta|benta|piraso)\b
    | -?{_LAST}(?i:{_DAYS})\b
    | (?:days?|months?|weeks?|years?|hours?|hrs?|mins?|minutes?|km|kg|mg|g|lbs?|oz|ml|cl|l|mm|cm|m|ft|inch(?:es)?
        |in|gb|mb|tb|mah|hz|ghz|watts?|volts?|sqft|sqm|m²|m2|cal|kcal|px)\b
    | -\d\d?-\d\d?(?!\d)|:\d\d(?!\d)|/\s?(?:5|10)(?![\d.,])|["″”’′]\s?(?:x|\b|$)|★|⭐|°
    )""",
    re.VERBOSE,
)
# Left of a number that has no currency of its own.
COUNTS: Final = re.compile(
    r"""(?:
      已售出?|售出|已賣出?|已卖出?|卖出|賣出|销量|銷量|月销|月銷|月售|累[计計]|总销|總銷|付款人?[数數]|库存|庫存
          |在庫|想要|[赞讚]|粉[丝絲]|[浏瀏][览覽]|剩餘|剩余|仅剩|僅剩|评价|評價|评分|評分|收藏|人气|人氣|成交(?:量|笔数|筆數)|热卖|熱賣
    | (?<!\w)sold(?!\s+(?:for|price|at)\b)|reviews?|ratings?|qty|quantity|stock|watchers|views|likes|followers|rated
    | terjual|ulasan|penilaian|stok|sisa|tersisa|dinilai
    | đã\s+bán|đánh\s+giá|kho|còn\s+lại|lượt\s+bán
    | ยอดขาย|ถูกใจ|ขายแล้ว|ขายได้|รีวิว|คลัง|เหลือ|คะแนน
    | vendid[oa]s?|avalia(?:ções|ção)|estoque|existencias|disponibles|opiniones
    | nabenta|naibenta|nabili
    | 판매|리뷰|재고|(?<!\w)(?:coins?|sku|id)|[货貨][号號]|型[号號]|商品[编編][号號]
    | (?<=\d)\s?/|[★⭐]|\d{4}-(?:\d\d?-)?|\d\d?:
    )\s*[:：(（]?\s*(?:[>≥約约]|over|more\s+than|hơn|lebih\s+dari|mais\s+de|กว่า)?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
MONTH_NAME: Final = re.compile(
    r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s*(?:\d{1,2})?,?\s*$", re.IGNORECASE
)
# Amounts of money that are no price: instalments, savings, shipping, thresholds.
PART_LEFT: Final = re.compile(
    r"""(?:
      \d\s?[x×]\s?(?:de|of|à|di|a|@)?|每期|期數|分期|月付|(?<!\w)(?:per\s+month|monthly|emi|instal?lments?\s+of|cicilan
          |angsuran|trả\s+góp|ผ่อน(?:ชำระ|เดือนละ)?|parcelas?\s+de|cuotas?\s+de|mensualidades\s+de)
    )\s*[:：]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
PART_RIGHT: Final = re.compile(
    r"""^\s?(?:[/／]\s?(?:mo\b|month|mth|期|月|bln|bulan|tháng|เดือน|mês|mes\b|monat|mois)
      | (?:per|a|each)\s+month|x\s?\d{1,2}\s?(?:期|months?|tháng|bulan)?\b|monthly|mtl\b|mensuales|mensais
          |[x×]\s?\d+\s?期|al\s+mese|par\s+mois|ต่อเดือน|เดือนละ)""",
    re.VERBOSE | re.IGNORECASE,
)
NO_PRICE_LEFT: Final = re.compile(
    r"""(?:
      (?<!\w)(?:you\s+)?sav(?:e|ed|ings?)(?:\s+up\s+to|\s+of)?|discount(?:\s+of)?|voucher|coupon|cashback|rebate
          |(?<!\w)off
    | (?<!\w)(?:shipping|delivery|postage|p&p|s&h|ongkir|ongkos\s+kirim|frete|envío|versand(?:kosten)?
        |livraison)(?:\s+(?:fee|cost|from))?
    | (?<!\w)(?:orders?|purchases?)(?:\s+(?:over|above|of))?|spend|(?<!\w)min(?:imum)?\.?\s+(?:spend|order|belanja)|over
    | 省|立减|立減|现省|現省|优惠|優惠|折抵|现折|現折|(?<=[\d.])\s*元?\s*[减減送]|返现|回饋|[满滿]|免[运運]
        |[运運][费費]|邮费|郵費|快[递遞]|[优優]惠券|[订訂]金|定金|押金|保[证證]金
    | hemat|diskon|potongan|giảm(?:\s+giá)?|tiết\s+kiệm|phí\s+vận\s+chuyển|đơn(?:\s+(?:từ|tối\s+thiểu))|ประหยัด
        |ส่วนลด|ลด|ค่าส่ง|ค่าจัดส่ง|ขั้นต่ำ|desconto|economize|descuento|ahorra
    )\s*[:：]?\s*[-–]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
NO_PRICE_RIGHT: Final = re.compile(
    r"""^\s?(?:off\b|discount|cashback|rebate|voucher|coupon|[减減](?!价|價)|折扣|优惠券|優惠券|抵用|红包|紅包
      |shipping|delivery|postage|p&p|ส่วนลด|diskon)""",
    re.VERBOSE | re.IGNORECASE,
)
LIST_LEFT: Final = re.compile(
    r"""(?:
      (?<!\w)(?:rrp|msrp|m\.r\.p\.?|mrp|srp|uvp|pvp\s+rec|list(?:\s+price)?|was|before
          |reg(?:ular)?\.?(?:\s+price)?|original(?:\s+price)?|old(?:\s+price)?|retail(?:\s+price)?|compare\s+at
          |statt|instead\s+of)
    | 原[价價]|市[价價]|市[场場][价價]|定[价價]|建[议議]售[价價]|吊牌[价價]|专柜[价價]|專櫃[价價]|划线[价價]
        |通常価格|参考価格
    | harga\s+(?:asli|normal|coret)|giá\s+gốc|giá\s+niêm\s+yết|ราคา(?:ปกติ|เต็ม)|de:?|preço\s+original
        |precio\s+(?:original|anterior)
    )\s*[:：]?\s*$""",
    re.VERBOSE | re.IGNORECASE,
)
SOLD: Final = re.compile(
    r"winning\s+bid|sold\s+(?:for|at|price)|(?<![\dk+]\s)\bsold\s*:?\s*\||best\s+offer\s+accepted|hammer\s+price|realised\s+price|realized\s+price|final\s+(?:bid"
    r"|price\s+realized)"
    r"|成交[价價](?!格?区)|[得得]標[价價]?|结拍[价價]|落札(?:価格|額)?|terjual\s+(?:seharga|dengan\s+harga)"
    r"|harga\s+terjual"
    r"|đã\s+bán\s+(?:với\s+)?giá|giá\s+(?:đã\s+)?bán\s+cuối|ขาย(?:ไป)?(?:ใน|ที่)ราคา|ราคา(?:ที่)?ขายได้"
    r"|vendido\s+por|verkauft\s+(?:für|um)|vendu\s+pour|낙찰",
    re.IGNORECASE,
)
# The product itself is free, not its shipping.
FREE: Final = re.compile(
    r"\b(?:free|gratis|kostenlos)\b(?!\s+(?:\w+\s+)?(?:shipping|delivery|postage|p&p|returns?|gifts?|ongkir|versand|envío"
    r"|verzending))|免[费費](?![运運]|配送|寄送|送[货貨])",
    re.IGNORECASE,
)
BID: Final = re.compile(
    r"\bbids?\b|出[价價]|[竞競][标標拍]|起[标標拍][价價]?|拍[卖賣]|目前[价價]|当前[价價]|當前[价價]|入札|現在価格"
    r"|開始価格|tawaran|lelang|penawaran"
    r"|giá\s+thầu|đấu\s+giá"
    r"|ประมูล|ราคาเสนอ|เสนอราคา|\blance\b|\bpuja\b|gebot|enchère|offerta\s+attuale|입찰",
    re.IGNORECASE,
)
ON_REQUEST: Final = re.compile(
    r"on\s+request|call\s+for|ask\s+for\s+price|contact|询价|詢價|面议|面議|電洽|电询|洽詢|hubungi|liên\s+hệ|ติดต่อ"
    r"|สอบถาม"
    r"|sob\s+consulta|consultar|auf\s+anfrage|sur\s+demande|по\s+запросу",
    re.IGNORECASE,
)

# The terms of schema.org and of shops' own data, in small letters alone.
_STOCK_TERMS: Final = {
    term: availability
    for availability, terms in {
        Availability.IN_STOCK: "instock available instoreonly onlineonly in 1 true yes availablefororder",
        Availability.LIMITED: "limitedavailability limited",
        Availability.OUT_OF_STOCK: "outofstock oos soldout unavailable notavailable reserved 0 false",
        Availability.PREORDER: "preorder presale pending",
        Availability.BACKORDER: "backorder",
        Availability.DISCONTINUED: "discontinued",
    }.items()
    for term in terms.split()
}
_SOLD_OUT: Final = re.compile(
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
_PREORDERED: Final = re.compile(
    r"pre-?order|預購|预售|預售|予約受付|đặt\s+trước|พรีออเดอร์|vorbestell|précommand", re.IGNORECASE
)
_IN_STOCK: Final = re.compile(
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
    if term in _STOCK_TERMS:
        return _STOCK_TERMS[term]
    return availability_words(str(written)) if len(str(written)) < 60 else None


def availability_words(text: str) -> Availability | None:
    """The availability in a short text. Denials come first: they often contain the word that they deny."""
    if _SOLD_OUT.search(text):
        return Availability.OUT_OF_STOCK
    if _PREORDERED.search(text):
        return Availability.PREORDER
    return Availability.IN_STOCK if _IN_STOCK.search(text) else None


_LONGEST_WORD: Final = 60
_MOST_WORDS: Final = 100

LITTLE_WORDS: Final = frozenset("a an and at by de der die das for from in la le of on or the to und with".split())  # noqa: SIM905
CHINESE: Final = r"[぀-ヿ㐀-䶿一-鿿가-힣]"
_WORD: Final = re.compile(rf"{CHINESE}+|(?:(?!{CHINESE})\w)+")
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
_PLURAL: Final = re.compile(r"[a-z]{3,}(?<!s)s")
_MEASURE: Final = re.compile(r"\b(\d+) ?(mm|cm|km|mg|g|kg|ml|cl|oz|lb|inch|mb|gb|tb|mah|hz|mhz|ghz|mp|ct|pc)s?\b")


def plain_text(text: str) -> str:
    """One spelling for all cases, widths and spaces."""
    one_case = normalize("NFKC", text).upper().casefold()
    return " ".join(normalize("NFKC", one_case).split())


def word_weight(word: str) -> float:
    """Numbers tell products of one brand apart, so they count double."""
    return 2.0 if any(sign.isdigit() for sign in word) else 1.0


def words_of(text: str) -> list[str]:
    """Words without accents and plurals, numbers with units. Text without spaces is split into pairs of characters."""
    found = []
    for run in _WORD.findall(_MEASURE.sub(r"\1\2", without_accents(text))):
        if re.match(CHINESE, run) and len(run) > 1:
            found += [run[place : place + 2] for place in range(len(run) - 1)]
        else:
            found.append(run[:-1] if _PLURAL.fullmatch(run) else run)
    return found


def without_accents(text: str) -> str:
    """Sellers write pokemon for pokémon. Marks of scripts that are not European stay."""
    return text if text.isascii() else normalize("NFC", _ACCENTS.sub("", normalize("NFD", text)))


def title_words(title: str) -> Sequence[str]:
    """The words by which a product is found, each once, the most specific first."""
    found = {word for word in words_of(plain_text(title)) if word not in LITTLE_WORDS and len(word) <= _LONGEST_WORD}
    return sorted(found, key=lambda word: (-word_weight(word), -len(word), word))[:_MOST_WORDS]
