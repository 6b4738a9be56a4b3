"""All links of a post are found, wherever they stand, each once; what is left out is named."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mistnet.shops.links.mentions import MOST_LINKS, examine, links_to_keep
from mistnet.shops.model import LinkKind, LinkPlace
from mistnet.shops.shop import WEB
from mistnet.shops.taobao import TAOBAO
from mistnet.social.model import THREADS, LinkMention, Media, Post, PostId, Reference, UserId, X

AT = datetime(2027, 1, 1, tzinfo=UTC)


def post(text: str = "", **fields: Any) -> Post:
    facts = {"platform": X, "id": PostId(1), "author_id": UserId(2), "created_at": AT, "raw": b"{}"}
    return Post(text=text, **{**facts, **fields})


def told(given: Post) -> list[tuple[str, LinkPlace]]:
    return [(mention.url, mention.place) for mention in examine(given).mentions]


def test_links_in_the_text_are_mentions_with_their_names() -> None:
    (mention,) = examine(post("買 https://shopee.tw/無線-i.1.2?x=1 好")).mentions
    assert (mention.url, mention.place) == ("https://shopee.tw/無線-i.1.2?x=1", LinkPlace.TEXT)
    assert mention.canonical.url_norm == "https://shopee.tw/product/1/2"


def test_xs_short_links_are_told_by_where_they_lead() -> None:
    shown = LinkMention(url="https://t.co/abc", expanded_url="https://s.shopee.tw/xyz")
    assert told(post("look https://t.co/abc", links=[shown])) == [("https://s.shopee.tw/xyz", LinkPlace.ENTITY)]


def test_an_unexpanded_short_link_is_kept_to_be_followed() -> None:
    (mention,) = examine(post("look https://t.co/abc")).mentions
    assert (mention.canonical.shop, mention.canonical.kind) == (WEB, LinkKind.SHORT)


def test_attachments_and_quoted_texts_are_looked_at_too() -> None:
    links = [
        LinkMention(url="https://s.shopee.tw/one", place=LinkPlace.ATTACHMENT),
        LinkMention(url="https://s.shopee.tw/two", place=LinkPlace.TEXT_ATTACHMENT),
    ]
    quoted = Reference(id=PostId(5), text="https://s.shopee.tw/three")
    reposted = Reference(id=PostId(6), text="https://s.shopee.tw/four")
    given = post("https://s.shopee.tw/zero", platform=THREADS, links=links, quoted=quoted, reposted=reposted)
    assert told(given) == [
        ("https://s.shopee.tw/zero", LinkPlace.TEXT),
        ("https://s.shopee.tw/one", LinkPlace.ATTACHMENT),
        ("https://s.shopee.tw/two", LinkPlace.TEXT_ATTACHMENT),
        ("https://s.shopee.tw/three", LinkPlace.QUOTED),
        ("https://s.shopee.tw/four", LinkPlace.QUOTED),
    ]


def test_xs_short_links_in_a_quoted_text_are_left_to_the_quoted_post_itself() -> None:
    assert told(post("see", quoted=Reference(id=PostId(5), text="buy https://t.co/abc"))) == []


def test_the_short_link_of_a_picture_is_no_link() -> None:
    picture = Media(kind="photo", url="https://pbs.example/1.jpg", shown_as="https://t.co/pic1234567")
    given = post("look https://t.co/pic1234567 https://t.co/abc", media=[picture])
    assert told(given) == [("https://t.co/abc", LinkPlace.TEXT)]
    assert examine(given).refusals == []
    quoting = post("yes https://t.co/pic1234567", quoted=Reference(id=PostId(5), text="look", media=[picture]))
    assert told(quoting) == []


def test_short_links_in_repeated_text_are_left_to_the_original() -> None:
    shown = LinkMention(url="https://t.co/whole12345", expanded_url="https://s.shopee.tw/xyz")
    original = Reference(id=PostId(5), text="buy https://t.co/whole12345 and https://t.co/other12345")
    repeating = post("RT @ann: buy https://t.co/whole12345 and https://t.co/ot…", links=[shown], reposted=original)
    assert told(repeating) == [("https://s.shopee.tw/xyz", LinkPlace.ENTITY)]


def test_one_thing_linked_in_many_ways_is_one_mention() -> None:
    links = [
        LinkMention(
            url="https://l.threads.com/?u=https%3A%2F%2Fshopee.tw%2Fproduct%2F1%2F2", place=LinkPlace.ATTACHMENT
        )
    ]
    given = post("shopee.tw/product/1/2 https://shopee.tw/x-i.1.2", platform=THREADS, links=links)
    assert told(given) == [("shopee.tw/product/1/2", LinkPlace.TEXT)]


def test_a_link_shown_cut_off_is_left_to_the_place_that_has_it_whole() -> None:
    whole = LinkMention(url="https://shopee.tw/product/1/2", place=LinkPlace.ATTACHMENT)
    cut_off = post("shopee.tw/product/1…", platform=THREADS, links=[whole])
    assert told(cut_off) == [("https://shopee.tw/product/1/2", LinkPlace.ATTACHMENT)]
    assert told(post("https://shopee.tw/product/1/2…")) == [("https://shopee.tw/product/1/2", LinkPlace.TEXT)]


def test_codes_are_mentions_that_lead_nowhere_yet_with_their_title() -> None:
    (mention,) = examine(post("￥AbC12dEf3Gh￥ 「好东西」")).mentions
    assert (mention.url, mention.title) == ("￥AbC12dEf3Gh￥", "好东西")
    assert (mention.canonical.url_norm, mention.canonical.kind) == ("taokouling:AbC12dEf3Gh", LinkKind.CODE)
    assert mention.canonical.shop is TAOBAO


def test_a_taobao_short_link_keeps_the_title_beside_it() -> None:
    (mention,) = examine(post("https://m.tb.cn/h.abc「商品名稱」")).mentions
    assert (mention.url, mention.title) == ("https://m.tb.cn/h.abc", "商品名稱")


def test_what_is_not_followed_is_named_with_its_reason() -> None:
    links = [LinkMention(url="https://t.co/x", expanded_url="https://x.com/ann/status/12/photo/1")]
    found = examine(post("https://fakeshopee.tw/product/1/2 https://t.co/x", links=links))
    assert found.mentions == []
    assert [(each.url, each.place) for each in found.refusals] == [
        ("https://fakeshopee.tw/product/1/2", LinkPlace.TEXT),
        ("https://t.co/x", LinkPlace.ENTITY),
    ]
    assert all(each.title for each in found.refusals)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_post_may_be_examined(text: str, urls: list[str]) -> None:
    found = examine(post(text, links=[LinkMention(url=url) for url in urls]))
    assert len({mention.canonical.url_norm for mention in found.mentions}) == len(found.mentions)


def test_of_a_post_with_very_many_links_the_first_are_kept_and_the_others_counted() -> None:
    text = " ".join(f"https://example.com/{number}" for number in range(MOST_LINKS + 3))
    *kept, left_out = links_to_keep(post(text))
    assert [each.url for each in kept] == [f"https://example.com/{number}" for number in range(MOST_LINKS)]
    assert (left_out.canonical.kind, left_out.canonical.url_norm) == (LinkKind.REFUSED, "left-out:x:1")
    assert left_out.title == "the post has 3 more links than the 500 that are kept for one post"


def test_links_that_are_shown_again_are_not_too_many() -> None:
    text = " ".join(f"https://example.com/{number}" for number in range(MOST_LINKS))
    assert examine(post(f"{text} {text}")).left_out == 0


def test_codes_and_refused_links_count_as_links() -> None:
    text = " ".join(f"https://fakeshopee.tw/{number}" for number in range(MOST_LINKS))
    found = examine(post(f"{text} ￥AbC12dEf3Gh￥ https://example.com/1"))
    assert (len(found.mentions), len(found.refusals), found.left_out) == (0, MOST_LINKS, 2)
