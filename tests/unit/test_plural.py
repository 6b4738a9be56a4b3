"""Numbers agree with their nouns."""

from mistnet.cli.coverage import conversation_blocks
from mistnet.kit.text import are, counted
from mistnet.social.coverage import Conversation
from mistnet.social.model import PostId


def test_one_is_singular_and_everything_else_is_plural() -> None:
    assert [counted(each, "post") for each in (0, 1, 2, 1200)] == ["0 posts", "1 post", "2 posts", "1,200 posts"]
    assert (counted(1, "reply", "replies"), counted(2, "reply", "replies")) == ("1 reply", "2 replies")
    assert (are(1), are(2)) == ("is", "are")


def test_a_conversation_of_one_post_says_so_in_the_singular() -> None:
    head = str(conversation_blocks(Conversation(conversation_id=PostId(5), posts=1))[0])
    assert "1 post is stored, 0 walks are under way, 0 failed" in head
