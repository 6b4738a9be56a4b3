-- How many posts an account wrote in each month (UTC), and how many likes its own ones have, reposts left out.
-- :user_id bigint
SELECT substr(p.created_at, 1, 7) AS month,
    count(*) AS posts,
    sum(CASE WHEN p.reposted_id IS NULL AND p.likes IS NOT NULL THEN 1 ELSE 0 END) AS liked,
    sum(CASE WHEN p.reposted_id IS NULL THEN p.likes END) AS likes
FROM posts p
WHERE p.platform = :platform AND p.author_id = :user_id
GROUP BY substr(p.created_at, 1, 7)
ORDER BY month
