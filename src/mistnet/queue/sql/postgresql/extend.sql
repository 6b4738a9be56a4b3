-- Extend the leases of jobs that are still being worked on. SKIP LOCKED leaves rows alone that are being settled now.
-- A running job is found by its worker, not by its state: the plan must go by id, not through the index of leases.
-- :until time
WITH held AS MATERIALIZED (
    SELECT j.id
    FROM jobs j
    JOIN each(:held) AS h (id bigint, fence bigint)
        ON j.id = h.id AND j.fence = h.fence
    WHERE j.worker IS NOT NULL
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET lease_until = :until WHERE jobs.id = ANY (ARRAY(SELECT h.id FROM held h))
RETURNING jobs.id
