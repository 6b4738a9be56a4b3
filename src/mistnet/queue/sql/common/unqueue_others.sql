-- Take jobs back that were handed to a broker on lanes which nobody dispatches any more.
UPDATE jobs
SET state = 'pending', wait_reason = NULL
WHERE state = 'queued' AND started_at <= :before AND lane NOT IN :known_lanes
RETURNING id
