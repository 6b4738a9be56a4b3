-- Forget finished jobs older than the retention, a slice at a time.
-- :before time, :limit integer
DELETE FROM job_history
WHERE id IN (SELECT h.id FROM job_history h WHERE h.finished_at < :before LIMIT :limit)
