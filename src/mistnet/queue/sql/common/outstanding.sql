-- What of one kind and lane is with the broker or with workers: the lane's queue, and what counts against caps.
SELECT
    (SELECT count(*) FROM jobs q WHERE q.state = 'queued' AND q.lane = :lane) AS lane_queued,
    (SELECT count(*) FROM jobs q WHERE q.state = 'queued' AND q.kind = :kind) AS kind_queued,
    (SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.lane = :lane) AS lane_running,
    (SELECT count(*) FROM jobs r WHERE r.state = 'running' AND r.kind = :kind) AS kind_running
