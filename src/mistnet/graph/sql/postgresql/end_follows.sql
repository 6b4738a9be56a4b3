-- End doubted edges, unless they were seen since the sync began. Returns the ended ones.
-- :now time, :ingest_id bigint, :since time
UPDATE follows
SET ended_at = :now
FROM each(:edges) AS gone (follower_id bigint, followed_id bigint)
WHERE follows.platform = :platform AND follows.follower_id = gone.follower_id AND follows.followed_id = gone.followed_id
    AND follows.ended_at IS NULL AND follows.missed_in IS NOT NULL
    AND follows.last_seen_at < :since AND follows.seen_in <> :ingest_id
RETURNING follows.follower_id, follows.followed_id
