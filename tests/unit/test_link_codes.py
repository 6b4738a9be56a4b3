"""Tao-kouling: codes are told from prices and words, with the title beside them."""
# ruff: noqa: RUF001 (letters and marks that look like others are the point)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.shops.links.mentions import find_codes, find_title


def codes(text: str) -> list[str]:
    return [found.code for found in find_codes(text)]


@pytest.mark.parametrize("mark", "￥¥$€£¢₳₤₴")
def test_a_code_stands_between_two_like_marks(mark: str) -> None:
    (found,) = find_codes(f"复制{mark}AbC12dEf3Gh{mark}打开")
    assert (found.code, found.verbatim) == ("AbC12dEf3Gh", f"{mark}AbC12dEf3Gh{mark}")


@pytest.mark.parametrize("text", ["￥AbC12dEf3Gh¥", "(AbC12dEf3Gh)", "（AbC12dEf3Gh）", "啊AbC12dEf3Gh啊"])
def test_brackets_mixed_yen_signs_and_doubled_characters_are_marks_too(text: str) -> None:
    assert codes(text) == ["AbC12dEf3Gh"]


@pytest.mark.parametrize("text", ["复制(AbCdEfGhIjK)打开淘宝", "淘口令：（abcdEF123456）", "複製啊AbCdEfGhIj啊"])
def test_where_the_text_speaks_of_the_app_less_usual_codes_are_believed(text: str) -> None:
    assert len(codes(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "￥199￥", "￥1999￥", "¥129900¥", "$199.00$", "￥RMB199￥", "￥199999rmb￥", "￥1999元￥", "$AAPL$",
        "$BITCOIN$", "$Dogecoin$",
        "(iphone15pro)", "(AbCdEfGhIjK)", "(hello world)", "复制(something)", "￥abc￥", "$100 or $200", "https://a.com/?x=$AbC12dEf3Gh$",
    ],
)  # fmt: skip
def test_prices_words_and_parts_of_urls_are_no_codes(text: str) -> None:
    assert codes(text) == []


def test_codes_are_told_in_order_and_once() -> None:
    assert codes("￥bbbbbb22￥ ￥aaaaaa11￥ ￥bbbbbb22￥") == ["bbbbbb22", "aaaaaa11"]


def test_the_title_is_in_corner_brackets_before_heavy_ones_and_never_the_apps_own_name() -> None:
    assert find_codes("【淘宝】￥AbC12dEf3Gh￥ 「超级好用的商品」")[0].title == "超级好用的商品"
    assert find_title("【淘宝】https://m.tb.cn/h.abc 【三只松鼠】") == "三只松鼠"
    assert find_title("「【日本直邮】面膜」") == "【日本直邮】面膜"
    assert find_title("【【天猫超市】麻花】http://a.com") == "【天猫超市】麻花"
    assert find_title("【淘宝】") is None
    assert find_title("「没有结尾") is None


@given(st.text())
def test_any_text_may_be_searched(text: str) -> None:
    for found in find_codes(text):
        assert found.verbatim in text
        assert found.code in found.verbatim
