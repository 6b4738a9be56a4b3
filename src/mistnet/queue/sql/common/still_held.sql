-- Which of these leases are still held by the caller?
-- A running job is found by its worker, not by its state: the plan must go by id, not through the index of leases.
SELECT j.id, j.fence
FROM each(:held) AS held (id bigint, fence bigint)
JOIN jobs j ON j.id = held.id AND j.fence = held.fence
WHERE j.worker IS NOT NULL
