-- Lengthen the leases of jobs still being worked on; rows that are being settled right now are left alone.
-- Leased is said by the worker, not by the state: the plan must go by id, not through the index of leases.
WITH held AS MATERIALIZED (
    SELECT j.id
    FROM jobs j
    JOIN unnest(CAST(:ids AS bigint[]), CAST(:fences AS bigint[])) AS h (id, fence)
        ON j.id = h.id AND j.fence = h.fence
    WHERE j.worker IS NOT NULL
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET lease_until = :until WHERE jobs.id = ANY (ARRAY(SELECT h.id FROM held h))
RETURNING jobs.id
