"""Finds currency marks in text and decides what they mean: by a hint, by the site's country, by common use."""

# ruff: noqa: RUF001, SIM905 (foreign words and marks are spelt as they are; short codes read best as a line)

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final
from urllib.parse import urlsplit

CODES: Final = frozenset(
    """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP
    CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF
    IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK
    MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR
    SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES
    VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWL
    """.split()
)
# Codes that are English words, too: read as codes only in capitals.
_WORDS: Final = frozenset("ALL AMD BAM BOB CUP FIT GEL LAK MAD MOP PEN RON SAR SOS TOP TRY".split())

WHOLE: Final = frozenset("BIF CLP COP DJF GNF HUF IDR ISK JPY KMF KRW KRW PYG RWF TWD UGX VND VUV XAF XOF XPF".split())
# Cents of these are seldom written, but they are.
SOME_CENTS: Final = frozenset("HUF TWD".split())
THOUSANDTHS: Final = frozenset("BHD IQD JOD KWD LYD OMR TND".split())

DOLLARS: Final = tuple(
    "USD TWD HKD SGD AUD CAD NZD MXN CLP COP ARS BRL UYU BND MOP JMD TTD BBD BSD BZD FJD GYD LRD NAD SRD XCD".split()
)
RUPEES: Final = tuple("INR PKR LKR NPR MUR SCR".split())
CROWNS: Final = tuple("SEK NOK DKK ISK CZK EEK".split())
DINARS: Final = tuple("RSD MKD KWD JOD IQD TND BHD DZD LYD".split())
FRANCS: Final = tuple("CHF XOF XAF XPF RWF GNF".split())
POUNDS: Final = ("GBP", "EGP", "LBP", "SYP", "GIP", "FKP", "SDG")

# What marks may mean, then all marks of that meaning. Of several currencies, hint and site choose.
_SHARED: Final[Mapping[tuple[str, ...], str]] = {
    DOLLARS: "$",
    POUNDS: "£",
    CROWNS: "kr Kr KR kr.",
    RUPEES: "Rs Rs. ₨",
    FRANCS: "Fr. Fr ₣ franc",
    DINARS: "din din. dinar Dinara",
    ("CNY", "JPY"): "¥ 圆",
    ("CNY", "TWD", "HKD", "MOP"): "元",
    ("CNY",): "块",
    ("TWD", "CNY"): "塊",
    ("TWD", "JPY", "HKD", "MOP"): "圓",
    ("RSD", "MKD"): "дин дин.",
    ("RUB", "BYN"): "р. р Р руб руб. рублей рубля",
    ("RON", "MDL"): "lei",
    ("IRR", "SAR", "YER", "OMR", "QAR"): "﷼",
    ("SAR", "QAR", "OMR", "YER", "IRR"): "ريال",
    ("AED", "MAD"): "درهم Dh Dhs dirham",
    ("EGP", "SDG"): "جنيه",
    ("XOF", "XAF"): "CFA",
    ("XAF", "XOF"): "FCFA",
    ("PHP", "BWP"): "P",
    ("ZAR", "BRL"): "R",
    ("ZMW", "PGK"): "K",
    ("GTQ",): "Q",
    ("THB",): "B",
}
# One meaning each: currency, then all its marks.
_PLAIN: Final = """
    USD US$ US_$ U$S USD$ US美元 美元 美金 美刀 dollars dollar U.S.$ U.S.
    TWD NT$ NT_$ NT NTD NTD$ TWD$ 台幣 台币 臺幣 新台幣 新臺幣 新台币
    HKD HK$ HK_$ HKD$ 港幣 港币 港元 港紙
    SGD S$ SG$ SG_$ SGD$ 新幣 新币 新加坡元 新加坡幣 坡幣
    MOP MOP$ 澳門元 澳门元 葡幣
    CNY RMB CN¥ CNH 人民币 人民幣 元人民币 元人民幣
    JPY 円 日元 日圓 日圆 日幣 日币 JP¥ yen
    KRW ₩ 원 韓元 韩元 韓圜 韓幣 won
    MYR RM 令吉 馬幣 马币 ringgit
    IDR Rp Rp. rupiah 印尼盾
    THB ฿ บาท baht 泰銖 泰铢 泰銖 THB฿
    VND ₫ đ Đ VNĐ VND₫ đồng dong 越南盾 đ/sp
    PHP ₱ Php PhP Piso piso 披索 菲律賓披索
    KHR ៛ riel
    LAK ₭ ກີບ kip
    MMK Ks kyat
    BRL R$ reais 巴西雷亞爾
    CAD C$ CA$ C_$ CAN$ CAN_$ CDN$ CAD$ 加元 加幣 加币
    AUD A$ AU$ AU_$ AUD$ A_$ 澳元 澳幣 澳币
    NZD NZ$ NZ_$ NZD$ 紐元 紐幣
    MXN MX$ MXN$ Mex$
    CLP CLP$ CL$
    COP COL$ CO$ COP$
    ARS AR$ ARS$
    UYU $U U$
    DOP RD$
    TTD TT$
    JMD J$
    NAD N$
    GYD G$
    BZD BZ$
    TOP T$
    ZWL Z$
    CUP CUC$
    CVE CV$ Esc
    WST WS$
    BBD Bds$
    BND BN$ B$
    NIO C$N
    EUR € euro euroa euros Euro EURO EUROS ευρώ евро 歐元 欧元 eur Eur
    GBP GB£ UK£ STG stg 英鎊 英镑 pounds
    CHF SFr SFr. CHf sFr. 瑞士法郎
    DKK DKK,- ddk
    CZK Kč Kc kč
    PLN zł Zł zl PLN zlotych złotych ZŁ
    HUF Ft
    RON LEI Lei RON
    BGN лв лв. lv
    HRK kn Kn kuna
    RSD Дин Дин. динар
    MKD ден ден.
    RUB ₽ RUR Rbl rub Rub
    UAH ₴ грн грн. hrn гривень
    KZT ₸ тг тг. тңг тенге
    GEL ₾ lari ლარი
    AMD ֏ դր դր.
    AZN ₼ ман. manat
    UZS so'm soʻm сум сўм Sʻ
    KGS сом
    TJS смн
    TRY ₺ TL
    ILS ₪ ש״ח ש"ח ש'ח שח nis NIS ش.ج
    INR ₹ 盧比 卢比 rupees INR₹
    BDT ৳ টকা taka
    MNT ₮
    AFN ؋
    IRR تومان ریال
    AED د.إ
    SAR ر.س SR
    QAR ر.ق
    KWD د.ك KD
    IQD ع.د د.ع
    OMR ر.ع
    YER ر.ي
    JOD د.أ د.ا JD دينار_أردني
    TND د.ت
    LYD د.ل
    DZD د.ج
    MAD د.م
    BHD د.ب
    EGP ج.م E£
    SDG ج.س
    SYP ل.س SY£
    LBP ل.ل LB£
    ETB ብር Br
    NGN ₦
    GHS ₵ GH₵
    KES KSh Ksh
    UGX USh
    TZS TSh
    RWF FRw RF R₣
    GNF GFr FG
    BIF FBu
    ZMW ZK
    AOA Kz kwz
    STN Db
    ERN Nfk
    MVR Rf
    BTN Nu.
    ALL Lek
    PEN S/ S/.
    BOB Bs Bs.
    PYG ₲ Gs
    CRC ₡
    ANG ƒ
    XPF CFP
"""


def _all_marks() -> dict[str, tuple[str, ...]]:
    marks = {mark: meaning for meaning, written in _SHARED.items() for mark in written.split()}
    for line in _PLAIN.strip().splitlines():
        code, *names = line.split()
        for name in names:
            marks.setdefault(name.replace("_", " "), (code,))
            marks.setdefault(name.replace("_", ""), (code,))
    for code in CODES:
        marks[code] = (code,)
        if code not in _WORDS:
            marks.setdefault(code.lower(), (code,))
            marks.setdefault(code.capitalize(), (code,))
        if code in DOLLARS:
            marks[f"{code} $"] = marks[f"{code}$"] = (code,)
    return marks


MARKS: Final = _all_marks()

_LETTER: Final = r"[^\W\d_]"
# A single Latin letter behind a number is a size or a unit more often than money.
_BEHIND: Final = [mark for mark in MARKS if len(mark) > 1 or not (mark.isascii() and mark.isalpha())]
_MOST_BLANKS: Final = 3
_IDEOGRAPHS: Final = 0x2E80
_SKIPPED: Final = frozenset(" \t\n\r\xa0\u202f,.-–—=*")
_MOST_SKIPPED: Final = 4
_MARKS_BEHIND: Final = frozenset(_BEHIND)
_REACH: Final = 14


def _lengths(marks: Iterable[str], sign: int) -> Mapping[str, Sequence[int]]:
    """How long the marks are that begin or end with each sign, the longest first."""
    found: dict[str, set[int]] = {}
    for mark in marks:
        found.setdefault(mark[sign], set()).add(len(mark))
    return {each: sorted(lengths, reverse=True) for each, lengths in found.items()}


# Looked up, not searched: a pattern of all marks would be tried at each sign. Few marks begin or end with one letter.
_LENGTHS_BEFORE: Final = _lengths(MARKS, -1)
_LENGTHS_BEHIND: Final = _lengths(_BEHIND, 0)


def mark_before(text: str, place: int) -> tuple[int, tuple[str, ...]] | None:
    """The mark that ends at a place in a text: where it starts, and what it may mean."""
    start = max(place - _REACH, 0)
    near = text[start:place]
    bare = near.rstrip(" :\t\n\r\xa0\u202f\u2009")
    if len(near) - len(bare) > _MOST_BLANKS:
        return None
    ends = (len(bare), len(bare) - 1) if bare.endswith(".") else (len(bare),)
    known = [(length, end) for end in ends for length in _LENGTHS_BEFORE.get(near[end - 1 : end], ())]
    for length, end in sorted(known, reverse=True) if len(ends) > 1 else known:
        begin = end - length
        if begin >= 0 and (meaning := _meaning_at(near, begin, end, MARKS)):
            return start + begin, meaning
    return None


def mark_after(text: str, place: int) -> tuple[int, tuple[str, ...]] | None:
    """The mark that follows a place in a text: where it ends, and what it may mean."""
    near = text[place : place + _REACH]
    for begin, sign in enumerate(near[: _MOST_SKIPPED + 1]):
        for length in _LENGTHS_BEHIND.get(sign, ()):
            end = begin + length
            if end <= len(near) and (meaning := _meaning_at(near, begin, end, _MARKS_BEHIND)):
                return place + end, meaning
        if sign not in _SKIPPED:
            break
    return None


def _meaning_at(near: str, begin: int, end: int, known: Collection[str]) -> tuple[str, ...] | None:
    """What a part of a text means, if it is a mark; no letters may run into those that are letters themselves."""
    mark = near[begin:end]
    if mark not in known:
        mark = " ".join(mark.split())
        if len(mark) != end - begin or mark not in known:
            return None
    if mark[0].isascii() and mark[0].isalpha() and near[begin - 1 : begin].isalpha() and begin:
        return None
    if mark[-1].isalpha() and ord(mark[-1]) < _IDEOGRAPHS and near[end : end + 1].isalpha():
        return None
    return MARKS[mark]


@cache
def _anywhere() -> re.Pattern[str]:
    """Any mark in a text. Made when it is first needed: it takes longer to compile than this package to load."""
    # The longest first; no letters may run into those that are letters themselves.
    return re.compile(
        "|".join(
            (rf"(?<!{_LETTER})" if mark[0].isalpha() and mark[0].isascii() else "")
            + re.escape(mark).replace(r"\ ", r"\s?")
            + (rf"(?!{_LETTER})" if mark[-1].isalpha() and ord(mark[-1]) < _IDEOGRAPHS else "")
            for mark in sorted(MARKS, key=len, reverse=True)
        )
    )


@lru_cache(maxsize=512)
def meanings(text: str | None) -> tuple[str, ...]:
    """What a currency field means: a code, a mark, or a text that holds one."""
    written = (text or "").strip()[:80]
    if written.upper() in CODES:
        return (written.upper(),)
    if written in MARKS:
        return MARKS[written]
    mark = next((each[0] for each in _anywhere().finditer(written) if len(each[0]) > 1 or not each[0].isalpha()), None)
    if mark is None:
        return ()
    return MARKS.get(mark) or MARKS.get(re.sub(r"\s", "", mark)) or MARKS[re.sub(r"\s", " ", mark)]


def code_of(text: str | None) -> str | None:
    """The ISO code of a currency field, if it has one meaning only."""
    possible = meanings(text)
    return possible[0] if len(possible) == 1 else None


_COUNTRIES: Final[Mapping[str, str]] = dict(
    pair.split(":")
    for pair in """
    tw:TWD cn:CNY hk:HKD mo:MOP sg:SGD my:MYR id:IDR th:THB vn:VND ph:PHP jp:JPY kr:KRW in:INR pk:PKR lk:LKR np:NPR
    bd:BDT br:BRL mx:MXN cl:CLP ar:ARS pe:PEN uy:UYU py:PYG bo:BOB cr:CRC gt:GTQ ca:CAD au:AUD nz:NZD uk:GBP gb:GBP
    us:USD ch:CHF li:CHF se:SEK no:NOK dk:DKK is:ISK cz:CZK pl:PLN hu:HUF ro:RON bg:BGN rs:RSD mk:MKD ba:BAM al:ALL
    ru:RUB by:BYN ua:UAH kz:KZT ge:GEL am:AMD az:AZN tr:TRY il:ILS ae:AED sa:SAR qa:QAR kw:KWD bh:BHD om:OMR jo:JOD
    eg:EGP ma:MAD tn:TND dz:DZD za:ZAR ng:NGN ke:KES gh:GHS tz:TZS ug:UGX do:DOP md:MDL uz:UZS mn:MNT kh:KHR
    de:EUR at:EUR fr:EUR it:EUR es:EUR pt:EUR nl:EUR be:EUR ie:EUR fi:EUR gr:EUR sk:EUR si:EUR ee:EUR lv:EUR lt:EUR
    lu:EUR mt:EUR cy:EUR hr:EUR eu:EUR
    """.split()
)
_SHOPS: Final[Mapping[str, str]] = {"taobao": "CNY", "tmall": "CNY", "1688": "CNY", "jd": "CNY", "pinduoduo": "CNY"}
# Top-level domains of no country: they only decide what a bare dollar means.
_WORLDWIDE: Final = frozenset({"com", "net", "org", "shop", "store", "biz", "info", "io", "co"})


@lru_cache(maxsize=1024)
def site_currency(site: str | None) -> str | None:
    """The currency of a site by its address: by shop, by country domain, or by a country in its path."""
    host, path = _host_and_path(site)
    labels = host.split(".")
    for name, currency in _SHOPS.items():
        if name in labels and labels[-1] in ("com", name):
            return currency
    # `.co` is worldwide, `.com.co` is Colombia.
    if labels[-2:] == ["com", "co"]:
        return "COP"
    if labels[-1] in _COUNTRIES and host not in _COUNTRIES:
        return _COUNTRIES[labels[-1]]
    country = re.match(r"/(?:[a-z]{2}[-_])?([a-z]{2})(?:[-_/]|$)", path.lower())
    if country and re.match(rf"/(?:{country[1]}[-_/][a-z]{{2}}|[a-z]{{2}}[-_]{country[1]})(?:/|$)", path.lower()):
        return _COUNTRIES.get(country[1])
    return None


def _host_and_path(site: str | None) -> tuple[str, str]:
    named = (site or "").strip()
    try:
        parts = urlsplit(named if "//" in named else f"//{named}")
        return (parts.hostname or "").rstrip("."), parts.path
    except ValueError:
        return "", ""


def choose(possible: tuple[str, ...], *, hint: str | None, site: str | None) -> str | None:
    """One of the currencies that a mark may mean. Without a mark, the hint decides, then the site."""
    hinted, local = meanings(hint), site_currency(site)
    if not possible:
        return hinted[0] if len(hinted) == 1 else local if not hinted or local in hinted else _customary(hinted, site)
    if len(possible) == 1:
        return possible[0]
    agreed = [each for each in possible if each in hinted]
    if len(agreed) == 1:
        return agreed[0]
    if local in possible:
        return local
    return _customary(possible, site)


def _customary(possible: tuple[str, ...], site: str | None) -> str | None:
    """The most common meaning of a mark. Dollars need at least a worldwide site to mean the usual one."""
    if possible is DOLLARS or possible == DOLLARS:
        return "USD" if _host_and_path(site)[0].rpartition(".")[2] in _WORLDWIDE else None
    return None if possible[0] in ("CNY", "TWD", "SEK", "INR", "IRR") else possible[0]
