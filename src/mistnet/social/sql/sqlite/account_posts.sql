-- How many posts of these accounts are stored.
SELECT known.user_id, known.posts
FROM account_posts known
WHERE known.platform = :platform AND known.user_id IN each(:ids bigint)
