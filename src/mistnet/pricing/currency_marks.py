"""The codes of currencies, and the marks people write for them."""

# ruff: noqa: RUF001, SIM905 (foreign words and marks are spelt as they are; short codes read best as a line)

from collections.abc import Mapping
from typing import Final

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
THOUSANDTHS: Final = frozenset("BHD IQD JOD KWD LYD OMR TND".split())

DOLLARS: Final = tuple(
    "USD TWD HKD SGD AUD CAD NZD MXN CLP COP ARS BRL UYU BND MOP JMD TTD BBD BSD BZD FJD GYD LRD NAD SRD XCD".split()
)
RUPEES: Final = tuple("INR PKR LKR NPR MUR SCR".split())
CROWNS: Final = tuple("SEK NOK DKK ISK CZK EEK".split())
DINARS: Final = tuple("RSD MKD KWD JOD IQD TND BHD DZD LYD".split())
FRANCS: Final = tuple("CHF XOF XAF XPF RWF GNF".split())
POUNDS: Final = ("GBP", "EGP", "LBP", "SYP", "GIP", "FKP", "SDG")

# Each mark and what it may mean. A single meaning needs no help; of several, hint and site choose.
_SHARED: Final[Mapping[str, tuple[str, ...]]] = {
    "$": DOLLARS,
    "¥": ("CNY", "JPY"),
    "元": ("CNY", "TWD", "HKD", "MOP"),
    "块": ("CNY",),
    "塊": ("TWD", "CNY"),
    "圆": ("CNY", "JPY"),
    "圓": ("TWD", "JPY", "HKD", "MOP"),
    "£": POUNDS,
    "kr": CROWNS,
    "Kr": CROWNS,
    "KR": CROWNS,
    "kr.": CROWNS,
    "Rs": RUPEES,
    "Rs.": RUPEES,
    "₨": RUPEES,
    "Fr.": FRANCS,
    "Fr": FRANCS,
    "₣": FRANCS,
    "franc": FRANCS,
    "din": DINARS,
    "din.": DINARS,
    "dinar": DINARS,
    "Dinara": DINARS,
    "дин": ("RSD", "MKD"),
    "дин.": ("RSD", "MKD"),
    "р.": ("RUB", "BYN"),
    "р": ("RUB", "BYN"),
    "Р": ("RUB", "BYN"),
    "руб": ("RUB", "BYN"),
    "руб.": ("RUB", "BYN"),
    "рублей": ("RUB", "BYN"),
    "рубля": ("RUB", "BYN"),
    "lei": ("RON", "MDL"),
    "﷼": ("IRR", "SAR", "YER", "OMR", "QAR"),
    "ريال": ("SAR", "QAR", "OMR", "YER", "IRR"),
    "درهم": ("AED", "MAD"),
    "جنيه": ("EGP", "SDG"),
    "Dh": ("AED", "MAD"),
    "Dhs": ("AED", "MAD"),
    "dirham": ("AED", "MAD"),
    "CFA": ("XOF", "XAF"),
    "FCFA": ("XAF", "XOF"),
    "P": ("PHP", "BWP"),
    "R": ("ZAR", "BRL"),
    "K": ("ZMW", "PGK"),
    "Q": ("GTQ",),
    "B": ("THB",),
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
    EUR € euro euros Euro EURO EUROS ευρώ евро 歐元 欧元 eur Eur
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
    marks = dict(_SHARED)
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
