"""Words in many scripts, links to many shops, and texts that break careless programs."""
# ruff: noqa: RUF001 - letters that look like others are the point

from functools import cache
from itertools import accumulate

from mistnet.sim.clock import chance, number_of

PHRASES = {
    "en": "the old coin market opens again this morning and nobody knows what silver will do next but I found a rare "
    "stamp near the river bridge & sold it for twice as much; tea, bread, rain, maps, birds don't lie, patience wins:",
    "es": "el mercado de monedas abre mañana y nadie sabe qué hará la plata ¿quizá? una pieza rara, café, lluvia",
    "de": "der Münzmarkt öffnet früh und niemand weiß was Silber morgen kostet, schöne Stücke für Sammler aus Köln",
    "pt": "o mercado abre amanhã e ninguém sabe o preço da prata, coleção rara, pão, chuva, não há pressa",
    "ru": "рынок монет открывается утром и никто не знает цену серебра редкая марка чай хлеб дождь птицы",
    "ar": "السوق يفتح صباحا ولا أحد يعرف سعر الفضة اليوم قطعة نادرة شاي خبز مطر طيور",
    "he": "השוק נפתח בבוקר ואיש אינו יודע את מחיר הכסף היום מטבע נדיר תה לחם גשם",
    "hi": "बाज़ार सुबह खुलता है और किसी को चाँदी का भाव नहीं पता दुर्लभ सिक्का चाय रोटी बारिश",
    "ja": "古銭 市場 が 今朝 開いた 銀 の 値段 は 誰も 知らない 珍しい 切手 を 見つけた お茶 雨 鳥 です ね。",
    "zh": "今天 的 钱币 市场 开门 了 没有人 知道 银价 会 怎样 一枚 稀有 邮票 茶 面包 下雨 小鸟 真的 吗？",
    "ko": "오늘 아침 동전 시장이 열렸다 은값은 아무도 모른다 희귀한 우표를 찾았다 차 빵 비 새",
}
UNSPACED = {"ja", "zh"}
EMOJI = ("🎉", "😂", "🪙", "👨‍👩‍👧‍👦", "🏴‍☠️", "👍🏽", "🇯🇵", "❤️", "🔥", "🫶🏿", "📈")
HASHTAGS = ("coins", "numismatics", "古銭", "Silber", "мoneta", "stamps", "deal", "トレンド", "예술", "100DaysOfCode")

HOSTILE_TEXTS = (
    "<script>alert('x')</script><img src=x onerror=alert(1)>",
    "Robert'); DROP TABLE posts;-- \"quoted\" 'single' `back`",
    "line one\nline two\r\nline three\ttabbed\u2028separated\u2029end",
    "bell\x07 escape\x1b[31mred\x1b[0m delete\x7f unit\x1f start\x01",
    "zero\u200bwidth\u200cnon\u200djoiner\ufeffmark\u2060joiner\u00adhyphen",
    "right\u202eto left override\u202c and \u2066isolate\u2069 שלום abc مرحبا",
    "z\u0351\u0343\u0310a\u0334\u0321l\u0338\u030dg\u0337o\u0336\u0315 combining e\u0301 versus \u00e9",
    '{"tweets":[],"has_next_page":false} \\u0000 \\ \\\\ %00 &amp; &lt; &#39;',
    '=HYPERLINK("http://example.com","click") +1 -1 @SUM(A1) | cmd',
    "𝒻𝒶𝓃𝒸𝓎 𠜎𠜱 \U0001f9d1\u200d\U0001f692 \U000e0067\U000e007f \uffff \ufdd0",
    "a" * 270,
    "🏳️‍🌈" * 40,
    ".",
    "NULL",
    "   spaces   kept   ",
    "null undefined NaN None true 1e309 -0 0x10",
    "${jndi:ldap://127.0.0.1/a} {{7*7}} <%= 7*7 %> ../../etc/passwd",
)

SHOP_LINKS = (
    "https://shopee.tw/product/178926468/21448123549",
    "https://shopee.sg/Vintage-Silver-Coin-1921-i.91799978.2154896123?sp_atk=1a2b&xptdk=3c",
    "https://s.shopee.tw/7fKqZ1bXyQ",
    "https://item.taobao.com/item.htm?spm=a1z10.1.w5003.1&id=673425618890",
    "https://detail.tmall.com/item.htm?id=629873314512&skuId=4718231",
    "https://m.tb.cn/h.5xYzAbC?tk=Wk3d",
    "https://www.ebay.com/itm/1921-Morgan-Dollar/155932418766?hash=item244&var=0",
    "https://ebay.us/m/Ab12Cd",
    "https://www.ebay.co.uk/itm/204512345678",
)
OTHER_LINKS = (
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://example.org/2026/09/why-silver-moved?utm_source=x&utm_medium=social",
    "https://example.net/a/very/long/path/that/is/cut/in/the/display/url.html",
    "http://example.com",
)


# Made once for each language: every sentence is cut from it.
@cache
def _babble(language: str) -> tuple[str, tuple[int, ...]]:
    """A long text in a language and the offsets of its words. Sentences are cut from it."""
    words = chance(number_of(language)).choices(PHRASES[language].split(), k=4_000)
    joint = "" if language in UNSPACED else " "
    starts = tuple(accumulate((len(word) + len(joint) for word in words[:2_000]), initial=0))
    return joint.join(words), starts


def sentence(language: str, length: int, luck: int) -> str:
    """A sentence of at most this many characters."""
    text, starts = _babble(language)
    start = starts[luck % len(starts)]
    said = text[start : start + length].strip()
    if luck >> 20 & 7 == 0 and length > 20:
        said = f"{EMOJI[(luck >> 24) % len(EMOJI)]} {said[:-20]}"
    return said or "."


def long_text(length: int) -> str:
    """A long post of exactly this length. Its lines are numbered, so that a cut is visible."""
    lines: list[str] = []
    size = 0
    while size < length:
        lines.append(f"{len(lines) + 1}: 長い投稿 a long post goes on and on \N{MEMO}\n")
        size += len(lines[-1])
    return "".join(lines)[: length - 1] + "."


def short_link(luck: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return "https://t.co/" + "".join(letters[(luck >> (6 * place)) % 62] for place in range(10))


def shown_link(expanded: str) -> str:
    bare = expanded.split("://", 1)[1].removeprefix("www.").rstrip("/")
    return bare if len(bare) <= 27 else f"{bare[:26]}\N{HORIZONTAL ELLIPSIS}"
