"""The simulated world: the same from the same seed, alive as time goes on, and full of trouble."""

import json
from datetime import timedelta

import pytest

from mistnet.sim.clock import DAY_MS, WORLD_START_AT, from_ms, legacy_date, time_of, to_ms
from mistnet.sim.language import HOSTILE_TEXTS
from mistnet.sim.people import Silence, SimAccountState, SizeTooSmall, WorldSize
from mistnet.sim.render import Renderer
from mistnet.sim.truth import Truth
from mistnet.sim.world import PostFate, World

START = WORLD_START_AT
START_MS = to_ms(START)


@pytest.fixture(scope="module")
def world() -> World:
    return World(7, "tiny")


@pytest.fixture(scope="module")
def truth(world: World) -> Truth:
    return Truth(world)


def bytes_of(world: World, now_ms: int) -> list[bytes]:
    renderer = Renderer(world)
    found = []
    for person in world.people:
        timeline = world.timeline(person.index, now_ms)
        found += [renderer.post(post_id, now_ms) for post_id in timeline.ids[: timeline.until(now_ms)]]
        found.append(renderer.users.profile(person, now_ms))
    return found


def test_the_same_seed_makes_the_same_bytes_and_another_seed_others() -> None:
    now_ms = START_MS + 9 * DAY_MS
    assert bytes_of(World(7, "tiny"), now_ms) == bytes_of(World(7, "tiny"), now_ms)
    assert bytes_of(World(8, "tiny"), now_ms) != bytes_of(World(7, "tiny"), now_ms)


def test_what_was_asked_before_changes_nothing() -> None:
    hasty, steady = World(7, "tiny"), World(7, "tiny")
    for day in (0, 4, 11):
        bytes_of(steady, START_MS + day * DAY_MS)
    bytes_of(steady, START_MS + 30 * DAY_MS)
    at_ms = START_MS + 11 * DAY_MS + 12_345
    assert bytes_of(hasty, at_ms) == bytes_of(steady, at_ms)


def test_ids_are_64_bit_carry_their_time_and_grow_with_it(world: World) -> None:
    for person in world.people:
        timeline = world.timeline(person.index, START_MS)
        ids = list(timeline.ids[: timeline.until(START_MS)])
        assert ids == sorted(set(ids))
        for post_id in ids:
            assert post_id < 1 << 63
            assert person.created_ms < time_of(post_id) <= START_MS
            assert world.ids.author_of(post_id) == person.index


def test_handles_and_user_ids_are_unique_and_well_formed(world: World) -> None:
    now = [person.handle_at(START_MS).lower() for person in world.people]
    assert len(set(now)) == len(now)
    assert len({person.id for person in world.people}) == len(world.people)
    for person in world.people:
        assert all(handle.isascii() and len(handle) <= 15 for _, handle in person.handles)


def test_about_as_many_posts_exist_as_asked_for() -> None:
    size = WorldSize(users=100, stars=10, posts=5_000)
    world = World(3, size)
    posts = sum(world.timeline(person.index, START_MS).until(START_MS) for person in world.people)
    assert 4_500 < posts < 6_000


def test_in_a_quiet_world_one_star_has_yet_to_write_and_another_never_retweets() -> None:
    truths = [Truth(World(7, "tiny", quiet=quiet)) for quiet in (False, True)]
    handles = [truth.accounts(WORLD_START_AT) for truth in truths]
    assert handles[0] == handles[1]
    found = [[truth.account(handle, WORLD_START_AT) for handle in handles[0][-2:]] for truth in truths]
    counts = [[(bool(each.search), bool(each.retweets)) for each in pair if each] for pair in found]
    assert [pair[0] for pair in counts] == [(True, True), (True, False)]
    assert [pair[1][0] for pair in counts] == [True, False]
    later = truths[1].account(handles[1][-1], WORLD_START_AT + timedelta(days=1))
    assert later
    assert later.search


def test_a_world_too_small_for_its_stories_is_refused() -> None:
    with pytest.raises(SizeTooSmall, match="needs 8 stars"):
        WorldSize(users=10, stars=2, posts=100)


def test_a_million_posts_are_not_generated_before_they_are_requested() -> None:
    world = World(7, "large")
    assert world.size.posts == 1_000_000
    assert len(world._drafts._kept) == 0
    star = world.stars[150]
    timeline = world.timeline(star.index, START_MS)
    assert world.post(timeline.ids[-1]) is not None
    assert len(world._timelines) < 5


def test_new_posts_arrive_and_old_ones_stay_as_time_goes_on(truth: Truth) -> None:
    handle = truth.accounts(START)[0]
    before = truth.search_ids(handle, START)
    after = truth.search_ids(handle, START + timedelta(days=7))
    fresh = [post_id for post_id in after if time_of(post_id) > START_MS]
    assert len(fresh) > 5
    gone = set(before) - set(after)
    assert all(truth.fate(post_id, START + timedelta(days=7)) is PostFate.DELETED for post_id in gone)
    assert truth.search_ids(handle, START) == before


def test_counts_grow_and_follows_come_and_go(world: World) -> None:
    renderer = Renderer(world)
    star = world.stars[0]
    then, later = START_MS, START_MS + 40 * DAY_MS
    before, after = (
        {(who, whom) for whom in range(len(world.people)) for who in world.follows.followers(whom, at)}
        for at in (then, later)
    )
    assert after - before
    assert before - after
    posts = [post_id for post_id in world.timeline(0, later).ids if 0 < time_of(post_id) - START_MS < 20 * DAY_MS]
    likes = [
        [json.loads(renderer.known(post, at))["likeCount"] for at in (post.at_ms, later)]
        for post in map(world.post, posts)
        if post and post.original is None
    ]
    assert sum(old for old, _ in likes) == 0
    assert sum(new for _, new in likes) > 0
    assert renderer.users.profile(star, then) != renderer.users.profile(star, later)


def test_both_ways_of_looking_at_a_follow_agree(world: World) -> None:
    for person in world.people:
        for other in world.follows.followers(person.index, START_MS):
            assert person.index in world.follows.followings(other, START_MS)


def test_a_renamed_account_keeps_its_id_and_leaves_its_old_handle(world: World, truth: Truth) -> None:
    star = world.stars[1]
    (_, old), (renamed_ms, new) = star.handles
    assert from_ms(renamed_ms) == START + timedelta(days=3)
    assert world.holder(old.upper(), START_MS) is star
    assert world.holder(new, START_MS) is None
    assert world.holder(new, renamed_ms) is star
    assert world.holder(old, renamed_ms) is None
    assert truth.handle_history(star.id) == ((None, old), (START + timedelta(days=3), new))


def test_a_handle_given_up_is_taken_by_another_user(world: World) -> None:
    left = world.stars[3].handles[0][1]
    assert world.holder(left, START_MS) is None
    taker = world.holder(left, START_MS + 5 * DAY_MS)
    assert taker is not None
    assert taker.id != world.stars[3].id


def test_every_world_has_people_of_each_state_and_each_way_of_not_showing_them() -> None:
    for seed in range(3):
        people = World(seed, "small").people
        assert {person.state for person in people} == set(SimAccountState)
        fallen = [person for person in people if person.state in {SimAccountState.SUSPENDED, SimAccountState.GONE}]
        assert {person.silence for person in fallen} == set(Silence)
        assert any(not person.searchable for person in people)


def test_the_deep_thread_has_sixty_levels_up_to_its_root(world: World, truth: Truth) -> None:
    chain = truth.chain(world.stories.deep_leaf, START)
    assert len(chain.ancestors) == 60
    assert chain.end == "root"
    assert chain.ancestors[-1] == chain.end_id
    leaf = world.post(world.stories.deep_leaf)
    assert leaf is not None
    assert world.root_of(leaf) == chain.end_id


@pytest.mark.parametrize(
    ("scene", "end"),
    [
        ("broken_leaf", "deleted"),
        ("protected_leaf", "protected"),
        ("suspended_leaf", "suspended"),
        ("ghost_leaf", "unknown"),
    ],
)
def test_a_chain_ends_where_a_post_cannot_be_had(scene: str, end: str, world: World, truth: Truth) -> None:
    leaf = world.post(getattr(world.stories, scene))
    assert leaf is not None
    chain = truth.chain(leaf.id, START)
    assert chain.end == end
    assert world.fate(chain.end_id, START_MS) == end
    assert world.root_of(leaf) <= chain.end_id


def test_references_point_back_in_time_and_retweets_never_dangle(world: World) -> None:
    retweets = 0
    for person in world.people:
        for post_id in world.timeline(person.index, START_MS).ids:
            post = world.post(post_id)
            assert post is not None
            assert post.parent is None or post.parent.id < post.id
            assert post.original is None or post.original < post.id
            if post.kind.name == "RETWEET":
                retweets += 1
                assert post.original
                assert world.fate(post.original, START_MS + 99 * DAY_MS) is PostFate.SHOWN
    assert retweets > 10


def test_texts_are_of_all_lengths_and_the_hostile_ones_are_there_unchanged(world: World) -> None:
    writer = Renderer(world).writer
    posts = [world.post(post_id) for post_id in world.stories.posts]
    texts = [writer.content(post).text for post in posts if post]
    assert set(HOSTILE_TEXTS) <= set(texts)
    assert max(map(len, texts)) > 25_000
    assert "x" in texts
    assert not any("\x00" in text for text in texts)
    assert all(text.encode("utf-8") for text in texts)


def test_indices_point_at_what_they_name(world: World) -> None:
    writer = Renderer(world).writer
    links = 0
    for person in world.people:
        for post_id in world.timeline(person.index, START_MS).ids:
            post = world.post(post_id)
            assert post is not None
            content = writer.content(post)
            for url in content.urls + content.media[:1]:
                assert content.text[slice(*url["indices"])] == url["url"]
                assert len(url["url"]) == 23
                links += 1
            for mention in content.mentions:
                assert content.text[slice(*mention["indices"])] == f"@{mention['screen_name']}"
            for tag in content.hashtags:
                assert content.text[slice(*tag["indices"])] == f"#{tag['text']}"
    assert links > 20


def test_dates_are_written_as_upstream_writes_them() -> None:
    assert legacy_date(to_ms(START) + 3_723_000) == "Thu Oct 01 01:02:03 +0000 2026"
