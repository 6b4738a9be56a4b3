-- Whose backfill is alive, so that their posts will come by themselves?
SELECT j.key FROM jobs j
WHERE j.kind = 'backfill' AND j.key = ANY (CAST(:keys AS text[]))
    AND j.key IS NOT NULL AND j.state IN ('pending', 'queued', 'running', 'retryable')
