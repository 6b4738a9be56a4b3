"""The bytes of a page become its text, whatever the page says of its own encoding."""

import pytest

from mistnet.shops.extraction.documents import decode
from mistnet.shops.extraction.read import read_page

TITLE = "超轻纯钛眼镜框"
GBK = f'<html><head><meta charset="gbk"><title>{TITLE}</title></head></html>'


def test_utf8_is_believed_before_a_meta_tag_that_says_otherwise() -> None:
    assert TITLE in decode(GBK.encode())


def test_gbk_is_read_by_its_meta_tag() -> None:
    assert TITLE in decode(GBK.encode("gbk"))


def test_the_header_comes_before_the_meta_tag() -> None:
    body = '<meta charset="gbk"><title>日本語</title>'.encode("shift_jis")
    assert "日本語" in decode(body, content_type="text/html; charset=Shift_JIS")


@pytest.mark.parametrize("name", ["utf-8-sig", "utf-16", "big5"])
def test_other_encodings_are_read(name: str) -> None:
    body = "<title>無線耳機</title>".encode(name)
    assert "無線耳機" in decode(body, charset="big5")


def test_a_page_cut_inside_a_character_is_still_read() -> None:
    body = ("<title>鵝肉鬆</title>" + "好吃" * 300).encode()[:-1]
    assert "鵝肉鬆" in decode(body, content_type="text/html; charset=iso-8859-1")


def test_an_unknown_charset_does_no_harm() -> None:
    facts = read_page(
        GBK.encode("gbk"), url="https://x.example", content_type="text/html; charset=rot13", charset="hex"
    )
    assert facts.title == TITLE
