-- Make work due that waited for a source to serve us again.
-- :now time
UPDATE jobs
SET run_at = :now, wait_reason = NULL
WHERE lane = :lane AND state IN ('pending', 'retryable') AND NOT parked AND run_at > :now
    AND wait_reason LIKE :about
