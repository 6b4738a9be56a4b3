-- Make jobs of one kind due that wait for one reason, which is over.
UPDATE jobs
SET run_at = :now, wait_reason = NULL
WHERE kind = :kind AND state = 'pending' AND NOT parked AND run_at > :now AND wait_reason = :reason
