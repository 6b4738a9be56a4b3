"""The statements of the dispatcher and of claims by id go through their indexes with 50,000 rows."""

from datetime import timedelta

import pytest

from mistnet.queue.store.claims import target_rows
from tests.contract.test_plans import fill, plan, scans
from tests.support import kind, open_shop

pytestmark = pytest.mark.fresh_database


async def test_dispatching_reads_no_table_from_end_to_end(url: str) -> None:
    async with open_shop(url, kind(), kind("other")) as shop:
        await fill(shop)
        targets = shop.kinds.targets(slots=1, lanes=None, lane_caps={})
        one = {"kind": "step", "lane": "x"}
        take = {
            "ids": [1, 2, 3],
            "worker": "bob",
            "now": shop.now,
            "lost_before": shop.now,
            "lease_until": shop.now + timedelta(seconds=9),
        }
        async with shop.database.read_cached_plan() as connection:
            plans = {
                "to_publish": await plan(connection, "to_publish", {**one, "now": shop.now, "limit": 9}),
                "outstanding": await plan(connection, "outstanding", one),
                "queued": await plan(connection, "queued", {"lane": "x", "before": shop.now}),
                "queued_ids": await plan(connection, "queued_ids", {"lanes": ["x"], "limit": 9}),
                "unqueue": await plan(
                    connection, "unqueue", {"lane": "x", "before": shop.now, "reason": "lost", "limit": 9}
                ),
                "unpublished_dead_letters": await plan(connection, "unpublished_dead_letters", {**one, "limit": 9}),
            }
            published = {"published": [(1, 0), (2, 0)], "now": shop.now}
            plans["mark_queued"] = await plan(connection, "mark_queued", published)
            listed = {**take, "targets": target_rows(targets)}
            plans["claim_by_id"] = await plan(connection, "claim_by_id", listed)
            if shop.database.dialect == "postgresql":
                assert plans["claim_by_id"].count("jobs_pkey") == 2
                assert plans["mark_queued"].count("jobs_pkey") == 2
            else:
                plans["claimable"] = await plan(connection, "claimable", {**listed, "ids": [1]})
        assert "jobs_due" in plans["to_publish"]
        assert "jobs_queued" in plans["queued"]
        assert "jobs_queued" in plans["queued_ids"]
        assert "jobs_queued" in plans["unqueue"]
        assert "jobs_gaps" in plans["unpublished_dead_letters"]
        for name, explained in plans.items():
            assert not list(scans(explained)), f"{name} reads the whole table:\n{explained}"
