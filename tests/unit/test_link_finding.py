"""URLs in post text: found whole, with nothing of the sentence around them, in Chinese prose as anywhere."""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mistnet.shops.links.finding import find_urls


def urls(text: str) -> list[str]:
    return [found.url for found in find_urls(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("看shopee.tw/無線耳機-i.1.2這個", "shopee.tw/無線耳機-i.1.2"),
        ("https://shopee.tw/【現貨】耳機（藍牙）-i.11.22好用", "https://shopee.tw/【現貨】耳機（藍牙）-i.11.22"),
        ("https://shopee.co.th/หูฟัง-i.1.2 ครับ", "https://shopee.co.th/หูฟัง-i.1.2"),
        ("Mua https://shopee.vn/Áo-thun-(đỏ)-i.1.2?sp_atk=x, nhé", "https://shopee.vn/Áo-thun-(đỏ)-i.1.2?sp_atk=x"),
        ("https://shopee.tw/a-i.1.2-i.3.4。", "https://shopee.tw/a-i.1.2-i.3.4"),
    ],
)
def test_a_slug_may_be_in_any_script_and_ends_with_its_two_ids(text: str, expected: str) -> None:
    assert urls(text) == [expected]


@pytest.mark.parametrize(
    "url",
    [
        "https://s.shopee.tw/4Vac_x-Y",
        "https://item.taobao.com/item.htm?id=1&spm=a.b",
        "www.ebay.com/itm/123456789012?var=1",
        "https://m.tb.cn/h.5abcDEF?tk=AbC",
        "https://shop.example.com/a",
    ],
)
def test_what_stands_right_behind_a_url_is_left_alone(url: str) -> None:
    behind = [
        "這個好用",
        "，很好",
        "。",
        "、",
        "」",
        "）",
        "】",
        "…",
        "...",
        "!",
        "?!",
        "\u200b",
        "\ufe0f🔥",
        "\u3000好",
        ">",
        "**",
        "|蝦皮",
    ]
    found = {each: urls(f"買 {url}{each}") for each in behind}
    assert found == {each: [url] for each in behind}


def test_a_hashtag_behind_a_shops_link_is_no_part_of_it() -> None:
    assert urls("https://s.shopee.tw/4Vac#好物 #蝦皮") == ["https://s.shopee.tw/4Vac"]


@pytest.mark.parametrize("pair", ["()", "[]", "<>", "（）", "「」", "【】", "''", '""'])
def test_what_encloses_a_url_is_not_part_of_it(pair: str) -> None:
    assert urls(f"{pair[0]}https://shopee.tw/product/11/22{pair[1]},") == ["https://shopee.tw/product/11/22"]


def test_a_bracket_that_opens_and_closes_inside_belongs_to_the_url() -> None:
    assert urls("(https://www.ebay.com/itm/Coin_(1921)/123456789012)") == [
        "https://www.ebay.com/itm/Coin_(1921)/123456789012"
    ]
    assert urls("https://shopee.tw/product/1/2(超好用)") == ["https://shopee.tw/product/1/2"]
    assert urls("[這裡](https://shopee.tw/product/1/2)") == ["https://shopee.tw/product/1/2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "https://shopee.tw/a-i.1.2https://shopee.tw/b-i.3.4",
            ["https://shopee.tw/a-i.1.2", "https://shopee.tw/b-i.3.4"],
        ),
        ("https://a.example.com/1https://b.example.com/2", ["https://a.example.com/1", "https://b.example.com/2"]),
        ("a.co/d/x,https://shopee.tw/product/3/4", ["a.co/d/x", "https://shopee.tw/product/3/4"]),
        ("https://shop.com/?to=https://shopee.tw/product/1/2", ["https://shop.com/?to=https://shopee.tw/product/1/2"]),
    ],
)
def test_two_links_without_a_blank_are_two_but_one_inside_another_is_one(text: str, expected: list[str]) -> None:
    assert urls(text) == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://l.threads.com/?u=https%3A%2F%2Fs.shopee.tw%2Fabc&e=AT1",
        "https://l.facebook.com/l.php?u=https://s.shopee.tw/abc&h=AT1",
        "https://shopee.tw.evil.com/product/1/2",
        "https://fakeshopee.tw/product/1/2",
    ],
)
def test_a_shops_name_inside_another_url_does_not_cut_it(url: str) -> None:
    assert urls(f"看 {url} 好") == [url]


@pytest.mark.parametrize(
    "text",
    ["版本1.2.3 跟 3.14 跟 a.b", "今天 11.11 特價 99.9 元", "me@shopee.tw", "https://[invalid", "no link", "", "..."],
)
def test_numbers_addresses_and_scraps_are_no_links(text: str) -> None:
    assert urls(text) == []


def test_bare_domains_are_found_in_order_with_the_rest() -> None:
    assert urls("shopee.tw/product/1/2 或 example.com/x 或 //item.taobao.com/item.htm?id=3") == [
        "shopee.tw/product/1/2",
        "example.com/x",
        "//item.taobao.com/item.htm?id=3",
    ]


def test_every_occurrence_is_told_with_its_place() -> None:
    found = find_urls("𝕏 a.com 😀 a.com")
    assert [(each.start, each.end) for each in found] == [(2, 7), (10, 15)]


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("htps:/.shopeetw-i12 。」(")), max_size=80))
@example("https://shopee.tw/\ud800-i.1.2")
def test_whatever_is_found_is_a_piece_of_the_text(text: str) -> None:
    ends = 0
    for found in find_urls(text):
        assert text[found.start : found.end] == found.url != ""
        assert found.start >= ends
        ends = found.end


@pytest.mark.parametrize(
    "hostile",
    [
        "a." * 10_000,
        "あ." * 10_000,
        "http://" + "あ" * 20_000 + ".com",
        "這是一段很長的文字，沒有網址。" * 1_500 + ".",
        "https://shopee.tw/" + "-i.1." * 5_000,
        "https://shopee.tw/" + "(x" * 10_000,
        "www." * 6_000,
        ".shopee.tw" * 2_000,
    ],
)
def test_no_text_takes_long(hostile: str) -> None:
    started = time.process_time()
    find_urls(hostile)
    assert time.process_time() - started < 2


def test_urls_are_found_where_setuptools_is_not_installed() -> None:
    program = (
        "import sys; sys.modules['pkg_resources'] = None; "
        "from mistnet.shops.links.finding import find_urls; print(find_urls('see example.com/x')[0].url)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "example.com/x"
