-- Keep what went wrong with each attempt, beside the job's own last error.
INSERT INTO job_errors (job_id, fence, at, worker, error)
SELECT json_extract(n.value, '$[0]'), json_extract(n.value, '$[1]'), :now, :worker, json_extract(n.value, '$[2]')
FROM json_each(:notes) n
WHERE TRUE
ON CONFLICT DO NOTHING
