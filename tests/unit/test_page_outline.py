"""The visible text of a page, and what its elements say of it."""

from selectolax.lexbor import LexborHTMLParser

from mistnet.shops.extraction.outline import JOINT, UNSEEN, Outline, outline


def outline_of(body: str) -> Outline:
    tree = LexborHTMLParser(body)
    tree.strip_tags(list(UNSEEN))
    return outline(tree, "/p/1")


def test_signs_of_markup_in_values_and_comments_are_no_tags() -> None:
    page = outline_of(
        """<p title="a > b" data-x='{"html": "<b>$7</b>"}' a<b="c" "odd">one<!-- <i>two</i> --> three</p>"""
    )
    assert page.tags == ["body", "p"]
    assert page.text == "one three\n"


def test_unescaped_content_of_frames_is_no_part_of_the_page() -> None:
    page = outline_of("<p>one</p><noframes><b></noframes><noembed><!-- </noembed><p>two</p>")
    assert page.tags == ["body", "p", "p"]
    assert page.text.split() == ["one", "two"]


def test_ends_of_lines_and_of_elements_are_told_apart() -> None:
    assert (
        outline_of("<div>one <b>two</b><i>three</i></div><p>four").text == f"one {JOINT}two{JOINT}three{JOINT}\nfour\n"
    )


def test_small_digits_behind_a_number_are_its_cents() -> None:
    assert f"12{JOINT}.99" in outline_of("<p><span>12</span><sup>99</sup></p>").text
    assert ".99" not in outline_of("<p><span>12</span><u>99</u></p>").text


def test_what_holds_for_an_element_holds_for_all_inside_it() -> None:
    page = outline_of(
        "<div class=related-products style=display:none><p><s><b>1</b></s></p></div>"
        "<div class=recommended><h1>2</h1></div>"
    )
    place = page.tags.index("b")
    assert page.is_aside(place)
    assert page.is_hidden(place)
    assert page.is_struck(place)
    assert not page.is_struck(page.tags.index("p"))
    assert not page.is_aside(page.tags.index("h1"))


def test_only_links_to_other_pages_are_links() -> None:
    page = outline_of(
        "<ul><li><a href='#x'>a</a><a href='/p/1?y'>b</a><a href='/cart'>c</a></ul><p><a href='/p/2'>d</a>"
    )
    assert [page.is_link(place) for place, tag in enumerate(page.tags) if tag == "a"] == [False, False, False, True]
    assert not page.holds_link(page.tags.index("ul"))
    assert page.holds_link(page.tags.index("p"))
    assert page.holds_link(0)


def test_buttons_are_known_by_text_value_and_label() -> None:
    page = outline_of(
        "<a href=/x>Add to cart</a><button aria-label='Buy now'></button><input value='Add to basket'>"
        "<input type=hidden value='Buy now'><a href=/y>Shipping</a><button>Kaufen</button>"
    )
    assert [each.text for each in page.buttons][:3] == ["Add to cart", "Buy now", "Add to basket"]
    assert "Shipping" not in [each.text for each in page.buttons]
