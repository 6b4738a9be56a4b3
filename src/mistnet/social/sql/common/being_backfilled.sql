-- Whose backfill is live, so that their posts will arrive without a walk?
SELECT j.key FROM jobs j
WHERE j.kind = 'backfill' AND j.key IN each(:keys text)
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
