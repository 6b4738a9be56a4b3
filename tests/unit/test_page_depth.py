"""Pages that nest deeper than any browser shows are not parsed; untidy ones are read to their end."""

import pytest

from mistnet.shops.extraction.documents import DEEPEST, parse_html
from mistnet.shops.extraction.read import read_page
from mistnet.shops.model import PageFacts, PageUnreadable

PRICE = "<p itemscope itemtype='https://schema.org/Offer'><b itemprop=price content=5></b></p>"


def page(html: str) -> PageFacts:
    return read_page(html.encode(), url="https://shop.example/p", content_type="text/html")


def elements(html: str, name: str) -> int:
    return len(parse_html(html).css(name))


def test_a_page_that_is_too_deep_is_not_parsed() -> None:
    with pytest.raises(PageUnreadable, match="inside each other"):
        parse_html("<div>" * (3 * DEEPEST))
    assert elements("<div>" * DEEPEST + "<h6>end</h6>", "h6") == 1


@pytest.mark.parametrize(
    "repeated",
    [
        "<div><span></div>",
        "<div><b><i>x</b></i></div>",
        "<p>one<br>two",
        "<ul><li>one<li>two</ul>",
        "<!-- <div> -->",
        "<script>'<div>'</script>",
        "<STYLE><div></style>",
        "<DIV></div>",
        "<table><tr><td>1<td>2</table>",
        "</div>",
    ],
)
def test_untidy_pages_are_read_to_their_end(repeated: str) -> None:
    assert elements(repeated * (2 * DEEPEST) + "<h6>end</h6>", "h6") == 1


@pytest.mark.parametrize(
    "written", ["[1e99999999999999999999]", "&#" + "1" * 5_000 + ";", '{"a": 1e-99999999999999999999}']
)
def test_numbers_beyond_all_bounds_do_not_fail_a_page(written: str) -> None:
    facts = page(f"<script type='application/ld+json'>{written}</script>{PRICE}")
    assert facts.amount == 5
