-- Refresh live edges that are seen again. They are no longer doubted.
-- :now time, :ingest_id bigint
UPDATE follows
SET missed_in = NULL, last_seen_at = :now, seen_in = :ingest_id
FROM each(:edges) AS seen (follower_id bigint, followed_id bigint)
WHERE follows.platform = :platform AND follows.follower_id = seen.follower_id AND follows.followed_id = seen.followed_id
    AND follows.ended_at IS NULL
