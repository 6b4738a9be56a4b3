-- Jobs of these lanes that were published to the broker, oldest message first, for workers that claim without a message.
-- :limit integer
SELECT q.id
FROM jobs q
WHERE q.state = 'queued' AND q.lane IN each(:lanes text)
ORDER BY q.started_at, q.id
LIMIT :limit
