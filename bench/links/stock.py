"""URLs and texts such as people post: shops in all their forms, other pages with their trackers, prose around them."""
# ruff: noqa: RUF001 (the marks of Chinese text are meant)

from collections.abc import Iterator, Sequence
from random import Random
from urllib.parse import quote

_WORDS = ("無線", "藍牙", "耳機", "Rare", "coin", "1921", "silver", "現貨", "Áo", "thun", "หูฟัง", "限時")
_PROSE = (
    "這個真的很好用，推薦給大家！",
    "look at this one",
    "限時特價。快來看看",
    "mua ngay hôm nay",
    "看看这个 复制打开",
    "no link here at all",
)


def urls(count: int, seed: int = 7) -> Sequence[str]:
    """The same for the same seed; about half of them name an item of a shop."""
    random = Random(seed)
    forms = [_slug, _product, _short, _wrapped, _taobao, _ebay, _amazon, _page, _page, _page]
    return [random.choice(forms)(random) for _ in range(count)]


def texts(count: int, seed: int = 7) -> Sequence[str]:
    """Two of three hold a link, glued to Chinese text as often as not."""
    random = Random(seed)
    return [" ".join(_said(random)) for _ in range(count)]


def long_texts(count: int, seed: int = 7) -> Sequence[str]:
    """About a thousand characters of Chinese with a link at the end."""
    random = Random(seed)
    return ["這個真的很好用，推薦給大家。" * 70 + _short(random) for _ in range(count)]


def _said(random: Random) -> Iterator[str]:
    yield random.choice(_PROSE)
    if random.random() < 2 / 3:
        yield urls(1, random.getrandbits(32))[0] + random.choice(("", "這個好用", "。", " ", "，"))
    yield random.choice(_PROSE)


def _number(random: Random, digits: int) -> int:
    return random.randrange(10 ** (digits - 1), 10**digits)


def _slug(random: Random) -> str:
    words = "-".join(random.choices(_WORDS, k=5))
    return f"https://shopee.tw/{words}-i.{_number(random, 8)}.{_number(random, 11)}?sp_atk=x&xptdk=y"


def _product(random: Random) -> str:
    return f"https://shopee.com.my/product/{_number(random, 8)}/{_number(random, 11)}"


def _short(random: Random) -> str:
    return f"https://s.shopee.tw/{_number(random, 10):x}"


def _wrapped(random: Random) -> str:
    return f"https://l.threads.com/?u={quote(_product(random), safe='')}&e=AT{_number(random, 12)}"


def _taobao(random: Random) -> str:
    return f"https://detail.tmall.com/item.htm?spm=a1z09.2&id={_number(random, 12)}&abbucket=1"


def _ebay(random: Random) -> str:
    return f"https://www.ebay.com/itm/a-silver-coin/{_number(random, 12)}?hash=item52&_trksid=p1"


def _amazon(random: Random) -> str:
    return f"https://www.amazon.co.jp/-/en/Thing/dp/B0{_number(random, 8)}/ref=sr_1_1?th=1"


def _page(random: Random) -> str:
    path = "/".join(random.choices(("shop", "Articles", "%7Euser", "2026", "coins"), k=3))
    return f"https://www.example{_number(random, 2)}.com/{path}?utm_source=threads&id={_number(random, 6)}&a=1#top"
