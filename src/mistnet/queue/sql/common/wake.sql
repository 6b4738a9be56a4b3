-- Make jobs of one kind due whose reason to wait is over.
-- :now time
UPDATE jobs
SET run_at = :now, wait_reason = NULL
WHERE kind = :kind AND state = 'pending' AND NOT parked AND run_at > :now AND wait_reason = :reason
