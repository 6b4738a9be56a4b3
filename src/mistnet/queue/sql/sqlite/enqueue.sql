-- Add one job; if its kind and key are already alive it is left as it is.
INSERT INTO jobs (kind, key, lane, class, state, args, max_attempts, run_at, created_at, parked, wait_reason)
VALUES (:kind, :key, :lane, :class, 'pending', :args, :max_attempts, :run_at, :now, :parked, :reason)
ON CONFLICT (kind, key) WHERE key IS NOT NULL AND state IN ('pending', 'queued', 'running', 'retryable') DO NOTHING
