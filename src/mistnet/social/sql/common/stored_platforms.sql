-- The platforms of which users are stored. One index lookup for each: DISTINCT would read the whole index.
WITH RECURSIVE found (platform) AS (
    SELECT min(u.platform) FROM users u
    UNION ALL
    SELECT (SELECT min(u.platform) FROM users u WHERE u.platform > found.platform)
    FROM found
    WHERE found.platform IS NOT NULL
)
SELECT platform FROM found WHERE platform IS NOT NULL
