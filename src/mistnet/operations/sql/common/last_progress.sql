-- When was a job last begun or settled? History has no index that tells its last row on every database: the jobs that
-- were added last, those that run and the last error tell it near enough.
SELECT max(seen.at) AS at FROM (
    SELECT max(newest.finished_at) AS at FROM (
        SELECT h.finished_at FROM job_history h ORDER BY h.created_at DESC, h.id DESC LIMIT 100
    ) AS newest
    UNION ALL SELECT max(e.at) AS at FROM job_errors e
    UNION ALL SELECT max(leased.started_at) AS at FROM (
        SELECT j.started_at FROM jobs j WHERE j.state = 'running' ORDER BY j.lease_until DESC LIMIT 1000
    ) AS leased
) AS seen
