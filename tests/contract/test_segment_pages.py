"""The dashboard's pages of segments and follows, without a browser: on every database."""

import asyncio
import html
import re
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest

from mistnet.graph.follows.listing import Follows
from mistnet.graph.segments.listing import SegmentPages
from mistnet.graph.segments.model import SegmentId
from mistnet.graph.selection import MOST_NODES, Edges, sample
from mistnet.social.model import UserId
from mistnet.web.pages.graph_pictures import PictureKey
from tests.apis import Api, open_api
from tests.browser.furnished import ANN, CROWD, HOSTILE, furnish
from tests.graphs import DAY, answer, follow, follow_event, people, person, segment, synced, turn, written
from tests.harvests import change, rows
from tests.support import START

pytestmark = pytest.mark.common_sql

PAGE = {"Accept": "text/html"}


async def shown(api: Api, path: str) -> str:
    answer_ = await api.get(path, headers=PAGE)
    assert answer_.status == 200, answer_.text[:2000]
    return answer_.text


async def test_all_segments_are_listed_with_their_rules_in_words_a_page_at_a_time(url: str) -> None:
    async with open_api(url) as api:
        database = api.app.database
        await people(database, [person(11, "ann"), person(12), person(13)])
        await segment(database, "bea", [12, 13], rule={"kind": "mutuals", "subject": "11"})
        await segment(database, "all", rule={"kind": "union", "of": ["bea", "cat"]}, materialized=False)
        await segment(database, "cat", [11], rule={"kind": "followers", "subject": "99"})
        pages = SegmentPages(database)
        found = [line for name in ("", "all", "bea") for line in (await pages.list(after=name, limit=1)).items]
        assert [(line.name, line.members, line.subject) for line in found] == [
            ("all", None, None),
            ("bea", 2, "ann"),
            ("cat", 1, None),
        ]
        text = await shown(api, "/segments")
        assert "users who follow @ann and are followed back" in text
        assert "followers of user 99" in text
        assert "members of any of bea and cat" in text


async def test_a_segments_members_and_changes_come_a_page_at_a_time_the_latest_first(url: str) -> None:
    async with open_api(url) as api:
        database, pages = api.app.database, SegmentPages(api.app.database)
        await people(database, [person(each) for each in range(1, 10)])
        own = SegmentId(await segment(database, "net", [1, 2, 3]))
        await turn(database, own, entered=[4, 5], left=[2], members=4, at=START + DAY)
        await turn(database, own, entered=[], left=[5], members=3, at=START + 2 * DAY)
        first = (await pages.members(own, before=None, limit=2)).items
        rest = (await pages.members(own, before=first[-1].place, limit=10)).items
        assert [each.user_id for each in (*first, *rest)] == [4, 3, 1]
        assert (first[0].handle, first[0].since, first[0].tracked) == ("user4", START + DAY, False)
        latest = (await pages.changes(own, before=None, limit=1)).items
        before = (await pages.changes(own, before=latest[-1].id, limit=10)).items
        assert [(each.kind, each.user_id) for each in (*latest, *before)] == [
            ("left", 5),
            ("left", 2),
            ("entered", 5),
            ("entered", 4),
        ]
        assert [count.members for count in await pages.snapshots(own, limit=2)] == [4, 3]


async def test_the_page_shows_members_over_time_who_came_and_went_and_a_picture(url: str) -> None:
    async with open_api(url) as api:
        there = await furnish(api.app)
        text = await shown(api, f"/segments/{there.segment}")
        assert "followers of @ann_of_the_net1" in text
        assert re.search('id="members-plot" role="img" aria-label="3 counts .*: from 60 to 61 users"', text)
        assert text.count('class="went gone"') == 1
        assert text.count('class="went came"') == 2
        (drawing,) = re.findall(r"<svg class=\"graph\".*?</svg>", text, re.DOTALL)
        picture = ET.fromstring(drawing)
        assert len(picture.findall("circle")) == CROWD + 1
        assert len(picture.findall("text")) == 24
        titles = [str(each.text) for each in picture.iter("title")]
        assert any(each.startswith("@ann_of_the_net1: followed by 60 and follows 5") for each in titles)
        assert HOSTILE not in text


async def test_a_segments_page_offers_its_members_for_spreadsheets(sqlite_url: str) -> None:
    async with open_api(sqlite_url) as api:
        await people(api.app.database, [person(11)])
        own = await segment(api.app.database, "some", [11])
        found = re.search(r'href="([^"]+segment=some[^"]+)" download>Excel', await shown(api, f"/segments/{own}"))
        assert found
        assert ",some,x,'11," in (await api.get(html.unescape(found[1]))).text


async def test_a_segment_of_posts_shows_posts_and_no_picture(url: str) -> None:
    async with open_api(url) as api:
        there = await furnish(api.app)
        text = await shown(api, f"/segments/{there.posts}")
        assert f'href="/conversations/{there.thread}"' in text
        assert 'class="graph"' not in text


async def test_a_picture_is_of_those_with_the_most_edges_among_the_latest_members(url: str) -> None:
    async with open_api(url) as api:
        database = api.app.database
        crowd = range(1, MOST_NODES + 51)
        await people(database, [person(each) for each in crowd])
        own = SegmentId(await segment(database, "many", list(crowd)))
        hub = MOST_NODES + 50
        await follow(database, *((each, hub) for each in range(1, 21)), (hub, 5))
        await follow(database, (7, 8), ended_at=START)
        await written(database, [answer(100, 9, hub), answer(101, 9, hub), answer(102, 9, 9)])
        found = await sample(database, own, Edges.FOLLOWS)
        assert (len(found.dots), found.candidates) == (MOST_NODES, MOST_NODES + 50)
        assert [dot.user_id for dot in found.dots[:3]] == [hub, 5, 1]
        assert len(found.lines) == 21
        answers = await sample(database, own, Edges.REPLIES)
        assert [(line.source, line.target, line.weight) for line in answers.lines] == [(9, hub, 2)]


async def test_a_segment_is_defined_by_form_and_materialized_and_slips_are_told(url: str) -> None:
    async with open_api(url) as api:
        await people(api.app.database, [person(11, "ann"), person(12, "bea")])

        async def define(**form: str) -> tuple[int, str]:
            answered = await api.post("/segments", headers=PAGE, data=form)
            return answered.status, answered.headers.get("Location", "") or answered.text

        status, place = await define(name="mutuals-of-ann", kind="mutuals", whom="https://x.com/ann", every="day")
        assert (status, place) == (303, "/segments/1?did=defined")
        status, place = await define(name="some", kind="specified_users", whom="@ann, 12")
        assert (status, place) == (303, "/segments/2?did=defined")
        assert await rows(api.app, "SELECT user_id FROM segment_inputs ORDER BY user_id") == [(11,), (12,)]
        asked = await rows(api.app, "SELECT kind, key, state FROM jobs ORDER BY key")
        assert asked == [("materialize", "1", "pending"), ("materialize", "2", "pending")]
        assert "every day" in await shown(api, "/segments/1")
        for form, said in (
            ({"name": "No Good", "kind": "followers", "whom": "@ann"}, "a name begins with a letter"),
            ({"name": "a", "kind": "followers", "whom": "@ann @bea"}, "about one user"),
            ({"name": "a", "kind": "followers", "whom": ""}, "name the users it is about"),
            ({"name": "a", "kind": "union", "whom": "@ann"}, "choose a rule"),
            ({"name": "a", "kind": "followers", "whom": "not a handle!"}, "about one user"),
            ({"name": "a", "kind": "followers", "whom": "what?"}, "1 to 15 letters"),
            ({"name": "a", "kind": "specified_users", "whom": "@nobody"}, "no stored user has the handle"),
            ({"name": "a", "kind": "followers", "whom": "@nobody"}, "MISTNET_X_API_KEY"),
            ({"name": "a", "kind": "specified_users", "whom": "99"}, "MISTNET_X_API_KEY"),
        ):
            status, text = await define(**form)
            assert status == 400, form
            assert said in text, (form, text[:3000])
        left = await rows(api.app, "SELECT name FROM segments ORDER BY id")
        assert left == [("mutuals-of-ann",), ("some",)]


async def test_a_segment_is_materialized_once_however_often_it_is_asked_for_and_not_while_disabled(url: str) -> None:
    async with open_api(url) as api:
        own = await segment(api.app.database, "net")

        async def press(button: str) -> str:
            answered = await api.post(f"/segments/{own}/{button}", headers=PAGE)
            return answered.headers["Location"].partition("did=")[2]

        assert [await press("materialize"), await press("materialize")] == ["materializing"] * 2
        assert await rows(api.app, "SELECT count(*) FROM jobs WHERE kind = 'materialize'") == [(1,)]
        assert "Waits to be materialized" in await shown(api, f"/segments/{own}")
        assert [await press("disable"), await press("materialize")] == ["disabled", "disabled-segment"]
        assert 'id="enable"' in await shown(api, f"/segments/{own}")
        assert await press("enable") == "enabled"
        for button in ("materialize", "enable", "disable"):
            assert (await api.post(f"/segments/77/{button}", headers=PAGE)).status == 404


async def test_an_accounts_page_shows_its_follows_over_time_and_who_came_and_went(url: str) -> None:
    async with open_api(url) as api:
        await furnish(api.app)
        text = await shown(api, f"/accounts/{ANN}")
        for side, course in (("followers", "1,000 to 1,020"), ("followings", "40 to 38")):
            assert re.search(f'id="{side}-plot" role="img" aria-label="2 counts .*: from {course} {side}"', text)
        assert "1,020 followers as of" in text
        assert text.count('class="went gone"') == 3
        assert ", suspended" in text
        assert ", vanished" in text
        assert "@crowd_903" in text.partition(">follows<")[2].partition("</li>")[0]
        await change(
            api.app, "UPDATE users SET followers_count = 60000, following_count = 100 WHERE id = :ann", ann=ANN
        )
        assert "Spend about 60,272 credits" in await shown(api, f"/accounts/{ANN}")
        refused = await api.post(f"/accounts/{ANN}/follow-sync", headers=PAGE)
        assert refused.headers["Location"] == f"/accounts/{ANN}?did=not-confirmed"
        assert await rows(api.app, "SELECT key FROM jobs WHERE kind = 'follow_sync'") == []
        answered = await api.post(f"/accounts/{ANN}/follow-sync", headers=PAGE, data={"confirmed": "yes"})
        assert answered.headers["Location"] == f"/accounts/{ANN}?did=syncing"
        keys = await rows(api.app, "SELECT key FROM jobs WHERE kind = 'follow_sync' ORDER BY key")
        assert keys == [(f"followers:{ANN}",), (f"followings:{ANN}",)]


async def test_follow_news_of_both_sides_come_a_page_at_a_time(url: str) -> None:
    async with open_api(url) as api:
        database, pages = api.app.database, Follows(api.app.database)
        await people(database, [person(each) for each in range(1, 5)])
        for one, other in ((2, 1), (1, 3), (4, 1), (2, 3)):
            await follow_event(database, one, other, "followed", "seen")
        own = UserId(1)
        news = [each for before in (None, 3, 2, 1) for each in (await pages.news(own, before=before, limit=1)).items]
        assert [(each.side, each.user_id) for each in news] == [("followers", 4), ("followings", 3), ("followers", 2)]
        await synced(database, own, "followers", {START: 3, START + DAY: 4})
        counted = await pages.count_history(own, limit=1)
        assert {side: [each.users for each in some] for side, some in counted.items()} == {
            "followers": [4],
            "followings": [],
        }


@pytest.mark.parametrize(
    "path", ["/segments/0", "/segments/x", "/segments/5", "/segments?after=%00", "/segments/1?edges=x"]
)
async def test_nonsense_in_an_address_is_never_a_fault_of_ours(url: str, path: str) -> None:
    async with open_api(url) as api:
        assert (await api.get(path, headers=PAGE)).status < 500


async def test_pictures_do_not_keep_a_page_waiting_and_are_told_when_they_are_drawn(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.web.pages.cached_counts.PATIENCE_SECONDS", 0.0)
    async with open_api(sqlite_url) as api:
        there = await furnish(api.app)
        dashboard = api.service.state.dashboard
        before = await dashboard.version()
        path = f"/segments/{there.segment}"
        assert "The picture is being drawn" in await shown(api, path)
        async with asyncio.timeout(50):
            while not dashboard.pictures.found:
                await asyncio.sleep(0.01)
        assert await dashboard.version() != before
        monkeypatch.setattr("mistnet.web.pages.cached_counts.PATIENCE_SECONDS", 5.0)
        assert 'class="graph"' in await shown(api, path)
        assert dashboard.pictures.found == 1


async def test_each_materialization_has_its_own_picture_and_few_are_kept(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mistnet.web.pages.cached_counts._KEPT_ANSWERS", 2)
    async with open_api(sqlite_url) as api:
        database, pictures = api.app.database, api.service.state.dashboard.pictures
        await people(database, [person(each) for each in (1, 2, 3)])
        own = SegmentId(await segment(database, "net", [1, 2]))
        for hour in range(4):
            if hour == 1:
                await follow(database, (1, 2))
            drawn = await pictures.get(PictureKey(own, Edges.FOLLOWS, START + timedelta(hours=hour)))
            assert drawn.lines == min(hour, 1)
        assert pictures.found == 4
        assert await pictures.get(PictureKey(own, Edges.FOLLOWS, START + timedelta(hours=3))) is drawn
        assert pictures.found == 4
        assert len(pictures._kept) <= 3
