-- How many jobs of one lane were published, and how many of them so long ago that the message may be lost.
-- :before time
SELECT count(*) AS jobs, count(CASE WHEN q.started_at <= :before THEN 1 END) AS overdue
FROM jobs q
WHERE q.state = 'queued' AND q.lane = :lane
