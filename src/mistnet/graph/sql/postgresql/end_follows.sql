-- Edges that are there no more, unless somebody has seen them since the sync began. Tells which it ended.
-- :follower_ids bigint[], :followed_ids bigint[], :now time, :ingest_id bigint, :since time
UPDATE follows f
SET ended_at = :now
FROM unnest(CAST(:follower_ids AS bigint[]), CAST(:followed_ids AS bigint[])) AS gone (follower_id, followed_id)
WHERE f.platform = :platform AND f.follower_id = gone.follower_id AND f.followed_id = gone.followed_id
    AND f.ended_at IS NULL AND f.missed_in IS NOT NULL AND f.last_seen_at < :since AND f.seen_in <> :ingest_id
RETURNING f.follower_id, f.followed_id
