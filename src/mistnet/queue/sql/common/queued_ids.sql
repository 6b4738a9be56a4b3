-- Jobs of some lanes that a broker was told of, oldest message first: for workers that take them without a message.
SELECT q.id
FROM jobs q
WHERE q.state = 'queued' AND q.lane IN :known_lanes
ORDER BY q.started_at, q.id
LIMIT :limit
