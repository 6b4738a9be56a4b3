"""What an account is likely to cost, from its profile."""

from datetime import timedelta

from mistnet.social.model import Detail, User, UserId, X
from mistnet.sources.x.quotes import ASSUMPTION, Quote, quote_user, total_quotes


def user(**about: object) -> User:
    known = {"handle": "ann", "posts_count": 1_000, **about}
    return User(platform=X, id=UserId(7), detail=Detail.PROFILE, raw=b"{}", **known)  # type: ignore[arg-type]


def test_a_thousand_posts_cost_their_pages_their_threads_and_their_people() -> None:
    found = quote_user("ann", user(), reposts=False)
    assert (found.post_credits, found.thread_credits, found.user_credits) == (15_000 + 15 + 18, 6_000, 100)
    assert found.credits == 21_133
    assert found.calls == 50 + 1 + 1 + 20 + 1


def test_a_second_pass_for_retweets_adds_only_its_looks_at_the_end() -> None:
    plain, both = quote_user("ann", user(), reposts=False), quote_user("ann", user(), reposts=True)
    assert both.credits - plain.credits == 2 * 15


def test_an_account_without_posts_costs_its_looks() -> None:
    assert quote_user("ann", user(posts_count=0), reposts=False).credits == 2 * 15 + 18


def test_what_cannot_be_collected_has_a_reason_and_no_price() -> None:
    for given, reason in (
        (None, "no user with this handle"),
        (user(unavailable_reason="suspended"), "unavailable: suspended"),
        (user(protected=True), "protected"),
        (user(posts_count=None), "does not say"),
    ):
        found = quote_user("ann", given, reposts=True)
        assert reason in (found.problem or "")
        assert found.credits == 0


def quotes(credits_due: int) -> list[Quote]:
    return [Quote(handle="a", post_credits=credits_due, calls=900), Quote(handle="b", calls=900)]


def test_the_bill_is_in_credits_and_dollars_and_time() -> None:
    found = total_quotes(quotes(250_000), per_minute=900, day_cap=None, month_cap=None)
    assert (found.credits, found.dollars, found.at_rate) == (250_000, 2.5, timedelta(minutes=2))
    assert (found.days_under_day_cap, found.months_under_month_cap) == (None, None)


def test_caps_are_told_only_where_they_stretch_it() -> None:
    found = total_quotes(quotes(250_000), per_minute=900, day_cap=100_000, month_cap=250_000)
    assert (found.days_under_day_cap, found.months_under_month_cap) == (3, None)
    assert total_quotes(quotes(250), per_minute=900, day_cap=0, month_cap=100).months_under_month_cap == 3


def test_the_assumption_is_told_with_its_numbers() -> None:
    assert "40% of the posts" in ASSUMPTION
    assert "10%" in ASSUMPTION
