"""A conversation reads from top to bottom, whatever of it is missing."""

from datetime import UTC, datetime
from typing import Any

from mistnet.social.coverage import MissingParent
from mistnet.social.model import PostId, UserId, X
from mistnet.social.store.post_listing import ListedPost
from mistnet.web.pages.posts import tree


def post(own: int, answers: int | None = None) -> ListedPost:
    names = ("lang", "url", "in_reply_to_user_id", "quoted_id", "reposted_id")
    nothing: dict[str, Any] = dict.fromkeys((*names, "referenced_text", "referenced_text_clean", "referenced_handle"))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return ListedPost(
        platform=X,
        id=PostId(own),
        author_id=UserId(1),
        handle=f"h{own}",
        name=None,
        text="",
        text_clean="",
        created_at=at,
        conversation_id=PostId(1),
        in_reply_to_id=PostId(answers) if answers else None,
        first_seen_at=at,
        last_updated_at=at,
        **nothing,
    )


def drawn(posts: list[ListedPost], *parents: MissingParent) -> list[tuple[int, int]]:
    """The depth and the id of each line; that of a missing post is negative."""
    lines = tree(posts, {each.post_id: each for each in parents})
    return [(line.depth, line.post.id if line.post else -(line.missing_id or 0)) for line in lines]


def test_answers_stand_below_what_they_answer_oldest_first() -> None:
    posts = [post(1), post(2, 1), post(3, 1), post(4, 2), post(5, 1)]
    assert drawn(posts) == [(0, 1), (1, 2), (2, 4), (1, 3), (1, 5)]


def test_what_is_missing_has_its_place_and_its_answers_stand_below_it() -> None:
    lost = MissingParent(post_id=PostId(3), reply_id=PostId(4), replies=2, gone=True, awaited=False)
    assert drawn([post(1), post(4, 3), post(6, 3)], lost) == [(0, 1), (0, -3), (1, 4), (1, 6)]


def test_a_page_from_the_middle_begins_with_what_stands_on_another() -> None:
    assert drawn([post(8, 7), post(9, 8)]) == [(0, -7), (1, 8), (2, 9)]


def test_a_thread_longer_than_the_stack_is_deep_can_be_drawn() -> None:
    posts = [post(1), *(post(each, each - 1) for each in range(2, 5_000))]
    lines = list(tree(posts, {}))
    assert lines[-1].depth == 4_998
    assert (lines[-1].step, lines[-1].answers) == (6, "h4998")
    assert lines[3].answers is None
