-- How many attempts failed since then, by lane; the job may be alive, over without its result, or finished meanwhile.
-- :since time
SELECT failed.lane, count(*) AS attempts
FROM (
    SELECT j.lane FROM job_errors e JOIN jobs j ON j.id = e.job_id WHERE e.at >= :since
    UNION ALL
    SELECT h.lane FROM job_errors e JOIN job_history h ON h.id = e.job_id WHERE e.at >= :since
) failed
GROUP BY failed.lane
