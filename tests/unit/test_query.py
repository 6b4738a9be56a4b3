"""What people type into a search is read as they mean it, and nothing they type breaks anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistnet.kit.errors import UsageError
from mistnet.social.errors import BadSearch
from mistnet.social.search_query import LONGEST_QUERY, SearchQuery, SearchTerm, fts5, parse, tsquery

SYNTAX = st.text(st.sampled_from("ab 'é\"“”*-ORAND()&|!<>:\\^{}+~,.@#_%$;\x00\ud800東京ั½🚀\n\t"))


def term(text: str, *words: str, prefix: bool = False) -> SearchTerm:
    return SearchTerm(text=text, words=words or (text,), prefix=prefix)


def query(*choices: SearchTerm | tuple[SearchTerm, ...], without: tuple[SearchTerm, ...] = ()) -> SearchQuery:
    return SearchQuery(
        choices=tuple(each if isinstance(each, tuple) else (each,) for each in choices), excluded=without
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("mist", query(term("mist"))),
        ("mist net", query(term("mist"), term("net"))),
        ('"mist  net"', query(term("mist net", "mist", "net"))),
        ("“mist net”", query(term("mist net", "mist", "net"))),
        ('big"mist net"s', query(term("big"), term("mist net", "mist", "net"), term("s"))),
        ("net -fog", query(term("net"), without=(term("fog"),))),
        ('net -"thick fog"', query(term("net"), without=(term("thick fog", "thick", "fog"),))),
        ("-fog net", query(term("net"), without=(term("fog"),))),
        ("net -fo*", query(term("net"), without=(term("fo", prefix=True),))),
        ("bi*", query(term("bi", prefix=True))),
        ('"mist ne"*', query(term("mist ne", "mist", "ne", prefix=True))),
        ("a OR b", query((term("a"), term("b")))),
        ("a OR b OR c d", query((term("a"), term("b"), term("c")), term("d"))),
        ("a or b", query(term("a"), term("or"), term("b"))),
        ("a AND b", query(term("a"), term("AND"), term("b"))),
        ("a OR -b c", query(term("a"), term("c"), without=(term("b"),))),
        ("well-known", query(term("well-known", "well", "known"))),
        ("@some_one's", query(term("@some_one's", "some", "one", "s"))),
        ("t.co/ab*", query(term("t.co/ab", "t", "co", "ab", prefix=True))),
        ("東京tower", query(term("東 京 tower", "東", "京", "tower"))),
        ("東京*", query(term("東 京", "東", "京", prefix=True))),
        ("हिन्दी", query(term("हिन्दी"))),
    ],
)
def test_a_query_means_what_people_expect(text: str, meant: SearchQuery) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('"mist net', '"mist net"'),
        ("OR mist", "mist"),
        ("mist OR", "mist"),
        ("mist OR OR net", "mist OR net"),
        ("mist OR !!! net", "mist OR net"),
        ("mist - net", "mist net"),
        ("mist * net", "mist net"),
        ("mist !!! 🚀 net", "mist net"),
        ('mist "" net', "mist net"),
        ("mist\x00net", "mist net"),
        ("mist\tnet\n", "mist net"),
    ],
)
def test_what_makes_no_sense_is_passed_over(text: str, plain: str) -> None:
    assert parse(text) == parse(plain)


@pytest.mark.parametrize("text", ["", "  ", '""', "-", "*", "OR", "🚀", "\x00", "\ud800", "...", "ั"])
def test_a_query_without_a_word_is_refused(text: str) -> None:
    with pytest.raises(BadSearch, match=r"name at least one word to look for$"):
        parse(text)


@pytest.mark.parametrize("text", ["-fog", '-"thick fog" -mist', "-fog OR"])
def test_a_query_that_only_leaves_out_is_refused_as_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="beside those to leave out"):
        parse(text)


def test_a_query_may_be_long_but_not_without_end() -> None:
    assert len(parse("ab " * (LONGEST_QUERY // 3)).choices) == LONGEST_QUERY // 3
    with pytest.raises(BadSearch, match="longer than 1,000 characters"):
        parse("a" * (LONGEST_QUERY + 1))


def test_each_database_gets_the_query_in_its_own_words() -> None:
    read = parse('a OR "b c" o\'d* -e\\')
    assert fts5(read) == '(("a" OR "b c") AND ("o d" *)) NOT ("e")'
    assert tsquery(read) == "(('a') | ('b c')) & (('o''d':* | ('o' <-> 'd':*))) & !(('e\\\\' | ('e')))"


@given(st.text() | SYNTAX)
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    try:
        read = parse(text)
    except BadSearch:
        return
    terms = [each for choice in read.choices for each in choice] + list(read.excluded)
    assert read.choices
    assert all(each.words and all(each.words) for each in terms)
    assert '"' not in "".join(word for each in terms for word in each.words)
    for rendered in (fts5(read), tsquery(read)):
        rendered.encode()
        assert "\x00" not in rendered
