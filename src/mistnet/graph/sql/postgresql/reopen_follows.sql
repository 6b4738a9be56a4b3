-- Reopen ended edges that are seen again. Returns them: of two writers, the guard lets only one report an edge.
-- :now time, :ingest_id bigint
UPDATE follows
SET ended_at = NULL, missed_in = NULL, last_seen_at = :now, seen_in = :ingest_id
FROM each(:edges) AS seen (follower_id bigint, followed_id bigint)
WHERE follows.platform = :platform AND follows.follower_id = seen.follower_id AND follows.followed_id = seen.followed_id
    AND follows.ended_at IS NOT NULL
RETURNING follows.follower_id, follows.followed_id
