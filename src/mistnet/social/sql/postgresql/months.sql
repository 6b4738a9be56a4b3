-- How many posts an account wrote in each month (UTC), and how many likes its own ones have, reposts left out.
-- :user_id bigint
SELECT to_char(p.created_at AT TIME ZONE 'UTC', 'YYYY-MM') AS month,
    count(*) AS posts,
    count(p.likes) FILTER (WHERE p.reposted_id IS NULL) AS liked,
    CAST(sum(p.likes) FILTER (WHERE p.reposted_id IS NULL) AS bigint) AS likes
FROM posts p
WHERE p.platform = :platform AND p.author_id = :user_id
GROUP BY month
ORDER BY month
