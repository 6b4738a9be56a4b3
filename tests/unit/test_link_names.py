"""A link has one name: rebuilt from the shop's ids, or the key of the page; look-alikes are refused."""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mistnet.shops.amazon import AMAZON
from mistnet.shops.ebay import EBAY
from mistnet.shops.links.address import RefusedUrl
from mistnet.shops.links.naming import LONGEST_KEY, canonical_link, fetchable_url
from mistnet.shops.model import Canonical, LinkKind
from mistnet.shops.shop import WEB, Shop
from mistnet.shops.shopee import SHOPEE
from mistnet.shops.taobao import TAOBAO

DIGITS = "9" * 25


def name(url: str) -> Canonical:
    found = canonical_link(url)
    assert isinstance(found, Canonical), (url, found)
    return found


@pytest.mark.parametrize(
    ("canonical_form", "urls"),
    [
        (
            "https://shopee.tw/product/11/22",
            [
                "https://shopee.tw/無線-耳機-i.11.22?sp_atk=x", "http://m.shopee.tw/x-i.11.22/#reviews",
                "shopee.tw/product/11/22", "https://SHOPEE.tw./PRODUCT/11/22", "https://shopee.tw/opaanlp/11/22",
                "https://shopee.tw/somebody/11/22", "https://shopee.tw/universal-link/x-i.11.22",
                "https://shopee.tw/api/v4/item/get?itemid=22&shopid=11", "https://shopee.tw/a-i.1.2-i.11.22",
                "\u200bhttps://shopee.tw/product/11/22\u200b", "https://xiapi.xiapibuy.com/product/11/22",
            ],
        ),
        (
            "https://item.taobao.com/item.htm?id=123456789012",
            [
                "https://detail.tmall.com/item.htm?spm=a.b&amp;id=123456789012",
                "https://a.m.taobao.com/i123456789012.htm", "//world.taobao.com/item/123456789012.htm?x=1",
                "https://h5.m.taobao.com/awp/core/detail.htm?itemId=123456789012",
                "https://main.m.taobao.com/security-h5-detail/home?id=123456789012&skuId=7",
                "https://uland.taobao.com/coupon/edetail?e=x&itemId=123456789012",
            ],
        ),
        (
            "https://www.ebay.com/itm/123456789012",
            [
                "https://www.ebay.de/itm/ein-titel/123456789012?hash=x", "https://ebay.com.au/i/123456789012",
                "https://cgi.ebay.co.uk/ws/eBayISAPI.dll?ViewItem&item=123456789012",
                "https://rover.ebay.com/rover/1/711/1?icep_item=123456789012",
            ],
        ),
        (
            "https://www.amazon.co.jp/dp/B07FW264WL",
            [
                "https://www.amazon.co.jp/-/en/Some-Thing/dp/b07fw264wl/ref=x?th=1",
                "https://amazon.co.jp/gp/product/B07FW264WL", "https://www.amazon.co.jp/gp/aw/d/B07FW264WL",
                "https://www.amazon.co.jp/exec/obidos/ASIN/B07FW264WL/tag-22",
            ],
        ),
        (
            "https://www.goofish.com/item?id=950000000334",
            [
                "https://h5.m.goofish.com/item?id=950000000334",
                "https://market.m.taobao.com/app/idleFish-F2e/x/page-detail?id=950000000334",
            ],
        ),
    ],
)  # fmt: skip
def test_all_ways_to_post_one_thing_have_one_name(canonical_form: str, urls: list[str]) -> None:
    assert {name(url).url_norm for url in urls} == {canonical_form}
    assert {name(url).kind for url in urls} == {LinkKind.ITEM}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://shopee.tw/product/1/2", "https://shopee.sg/product/1/2"),
        ("https://shopee.tw/product/1/2", "https://shopee.tw/product/2/1"),
        ("https://shopee.tw/product/1/2", "https://shopee.tw:8443/product/1/2"),
        ("https://www.ebay.com/itm/123456789012", "https://www.ebay.com/p/123456789012"),
        ("https://www.amazon.com/dp/B07FW264WL", "https://www.amazon.de/dp/B07FW264WL"),
        ("https://s.shopee.tw/AbC", "https://s.shopee.tw/aBc"),
        ("https://example.com/a%2Fb", "https://example.com/a/b"),
        ("https://example.com/a", "https://example.com/a/"),
        ("https://example.com/?id=1", "https://example.com/?id=2"),
        ("https://example.com/#/item/1", "https://example.com/#/item/2"),
        ("https://example.com/A", "https://example.com/a"),
    ],
)
def test_different_things_keep_different_names(one: str, other: str) -> None:
    assert name(one).url_norm != name(other).url_norm


def test_ids_are_text_of_any_length_and_variants_are_kept_beside() -> None:
    item = name(f"https://shopee.com.my/product/1/{DIGITS}")
    assert (item.region, item.shop_id, item.item_id) == ("com.my", "1", DIGITS)
    assert name("https://detail.tmall.com/item.htm?id=1&skuId=77").variant == "77"
    assert name("https://www.ebay.com/itm/123456789012?var=421").variant == "421"
    assert name("https://www.ebay.com/itm/123456789012?var=0").variant is None
    assert name("https://uland.taobao.com/item/edetail?id=8gQmyVZc-Abc1").item_id == "8gQmyVZc-Abc1"


@pytest.mark.parametrize(
    ("url", "shop", "kind"),
    [
        ("https://s.shopee.tw/AKL_x-Q?x=1", SHOPEE, LinkKind.SHORT),
        ("https://br.shp.ee/abc", SHOPEE, LinkKind.SHORT),
        ("https://e.tb.cn/h.abc?tk=1", TAOBAO, LinkKind.SHORT),
        ("https://s.click.taobao.com/t?e=m%3D2", TAOBAO, LinkKind.SHORT),
        ("https://ebay.us/m/AbC", EBAY, LinkKind.SHORT),
        ("https://a.co/d/abc", AMAZON, LinkKind.SHORT),
        ("https://t.co/abc", WEB, LinkKind.SHORT),
        ("http://v.example.com/h.Gfsjzt", WEB, LinkKind.SHORT),
        ("https://shopee.tw/shop/123", SHOPEE, LinkKind.SHOP),
        ("https://shopee.tw/search?keyword=x", SHOPEE, LinkKind.SEARCH),
        ("https://shopee.tw/verify/traffic", SHOPEE, LinkKind.BLOCKED),
        ("https://login.taobao.com/member/login.jhtml?redirectURL=x", TAOBAO, LinkKind.BLOCKED),
        ("https://detail.tmall.com/auction/noitem.htm?itemid=12", TAOBAO, LinkKind.DEAD),
        ("https://shp.ee/error_page", SHOPEE, LinkKind.DEAD),
        ("https://brand.example.tmall.com/", TAOBAO, LinkKind.SHOP),
        ("https://www.ebay.com/p/1234?iid=1", EBAY, LinkKind.CATALOGUE),
        ("https://shopee.tw/", SHOPEE, LinkKind.PAGE),
        ("https://item.taobao.com/item.htm?id=abc", TAOBAO, LinkKind.PAGE),
        ("https://www.amazon.com/dp/SHORT", AMAZON, LinkKind.PAGE),
        ("https://thebay.com/x", WEB, LinkKind.PAGE),
        ("https://bucket.s3.amazonaws.com/x", WEB, LinkKind.PAGE),
        ("https://www.hotmall.example/x", WEB, LinkKind.PAGE),
        ("https://save-the-amazon.example/x", WEB, LinkKind.PAGE),
        ("https://www.ebay-kleinanzeigen.de/x", WEB, LinkKind.PAGE),
    ],
)
def test_what_is_no_item_is_told_for_what_it_is(url: str, shop: Shop, kind: LinkKind) -> None:
    assert (name(url).shop, name(url).kind, name(url).item_id is None or kind is LinkKind.CATALOGUE) == (
        shop,
        kind,
        True,
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://shopee.tw.evil.com/product/1/2", "https://fakeshopee.tw/product/1/2", "https://shopee-tw.com/",
        "https://shоpee.tw/product/1/2", "https://sh0pee.tw/product/1/2", "https://shopeé.tw/", "https://shopee.top/",
        "https://tb.cn.evil.com/h.abc", "https://nottaobao.com/item.htm?id=1", "https://ebay.com.evil.io/itm/1",
        "https://www.ebay-deals.com/itm/1", "https://notebay.com/", "https://amaz0n.com/dp/B07FW264WL",
        "https://amazon.com.evil.io/dp/B07FW264WL", "https://аmazon.com/", "https://shp.ee.evil.com/abc",
        "https://amazon-login.com/", "https://sho-pee.example/", "https://e-bay24.com/",
    ],
)  # fmt: skip
def test_a_host_that_only_looks_like_a_shop_is_refused(url: str) -> None:
    found = canonical_link(url)
    assert isinstance(found, RefusedUrl)
    assert "looks like" in found.reason
    assert isinstance(fetchable_url(url), RefusedUrl)


@pytest.mark.parametrize(
    "label", ["1" * 60, "my" * 30 + "x", "ebay" + "my" * 29 + "x", "the" * 20, "deals" * 12, "a-" * 30 + "b"]
)
def test_no_host_takes_long(label: str) -> None:
    started = time.process_time()
    canonical_link(f"https://{label}.{label}.example/")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "url",
    [
        "https://shopee.tw@evil.com/product/1/2", "https://user:secret@example.com/", "javascript:alert(1)",
        "file:///etc/passwd", "ftp://shopee.tw/product/1/2", "mailto:a@b.example", "data:text/html,x", "", " ", "hello",
        "/product/1/2", "?a=1", "#x", "http://", "http://example.com:99999/", "https://xn--/", "http://[::1",
        "\ud800.com", "https://a..b/", "https://" + "a." * 200 + "com/",
    ],
)  # fmt: skip
def test_what_cannot_or_must_not_be_followed_is_refused(url: str) -> None:
    assert isinstance(canonical_link(url), RefusedUrl)


def test_a_spoof_with_a_backslash_is_read_as_browsers_read_it() -> None:
    assert name("https://evil.example\\@shopee.tw/product/1/2").host == "evil.example"
    assert name("https://shopee.tw\\product\\1\\2").item_id == "2"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTPS://Example.COM:443/a", "https://example.com/a"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://example.com", "https://example.com/"),
        ("https://bücher.example/a", "https://xn--bcher-kva.example/a"),
        ("https://example.com/%7Euser/%41", "https://example.com/~user/A"),
        ("https://example.com/%e8%9d%a6", "https://example.com/蝦"),
        ("https://example.com/a/./b/../c", "https://example.com/a/c"),
        ("https://example.com/?b=1&a=2", "https://example.com/?a=2&b=1"),
        ("https://example.com/?q=a%20b", "https://example.com/?q=a+b"),
        ("https://example.com/#part", "https://example.com/"),
        ("https://example.com/?utm_source=x&id=1&fbclid=y&igsh=z&spm=a.b", "https://example.com/?id=1"),
        ("https://example.com/?UTM_Source=x", "https://example.com/"),
        ("https://example.com/?a=1&amp;b=2", "https://example.com/?a=1&b=2"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("https://e.tb.cn/h.abc?tk=AbC", "http://e.tb.cn/h.abc"),
    ],
)
def test_ways_to_write_one_page_have_one_key(one: str, other: str) -> None:
    assert name(one).url_norm == name(other).url_norm


def test_a_very_long_url_keeps_its_head_and_a_digest_that_fits_an_index() -> None:
    one = name("https://example.com/%E8%9D%A6" + "/漢" * 3_000 + "?a=1")
    other = name("https://example.com/%E8%9D%A6" + "/漢" * 3_000 + "?a=2")
    assert len(one.url_norm.encode()) <= LONGEST_KEY
    assert one.url_norm.startswith("https://example.com/%E8%9D%A6/")
    assert one.url_norm != other.url_norm
    assert name(one.url_norm) == one


def test_what_is_fetched_is_what_was_posted_freed_of_its_wrapper_and_fragment() -> None:
    wrapped = "https://l.threads.com/?u=https%3A%2F%2Fexample.com%2Fa%3Fb%3D2%26utm_source%3Dx%23c&e=1"
    assert fetchable_url(wrapped) == "https://example.com/a?b=2&utm_source=x"
    assert fetchable_url("shopee.tw/product/1/2") == "https://shopee.tw/product/1/2"


HOSTS = st.sampled_from(
    (
        *(
            "example.com",
            "example.com.",
            "EXAMPLE.com:80",
            "x.example:8080",
            "bücher.example",
            "l.threads.com",
            "m.tb.cn",
        ),
        *(
            "shopee.tw",
            "s.shopee.tw",
            "item.taobao.com",
            "login.taobao.com",
            "www.ebay.com",
            "rover.ebay.com",
            "amzn.to",
        ),
    )
)
PIECES = st.lists(
    st.sampled_from(["a", "B", "0", "%2F", "%2e", "%41", "%zz", "%", "漢", "é", "utm_x=1", "&amp;", "-i.1.2", "id=12"])
    | st.sampled_from(list("/?&=#.-_~+;:@!$'()*,[]|\\^`{}\" <>\t\n")),
    max_size=20,
).map("".join)


@given(st.sampled_from(["http://", "https://", "//", "", "HTTPS:\\\\"]), HOSTS, PIECES)
@example("http://", "shopee.tw", ";")
@example("http://", "foo.09..", "")
def test_a_name_is_its_own_name(scheme: str, host: str, rest: str) -> None:
    found = canonical_link(f"{scheme}{host}/{rest}")
    if isinstance(found, Canonical):
        again = name(found.url_norm)
        assert (again.url_norm, again.shop, again.kind) == (found.url_norm, found.shop, found.kind)
        assert (again.shop_id, again.item_id) == (found.shop_id, found.item_id)


@given(st.text())
def test_any_text_gets_a_name_or_a_refusal(text: str) -> None:
    assert isinstance(canonical_link(text), Canonical | RefusedUrl)
    assert isinstance(fetchable_url(text), str | RefusedUrl)
