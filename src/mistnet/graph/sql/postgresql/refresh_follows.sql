-- Edges that live and are seen once more: nobody doubts them now.
-- :follower_ids bigint[], :followed_ids bigint[], :now time, :ingest_id bigint
UPDATE follows f
SET missed_in = NULL, last_seen_at = :now, seen_in = :ingest_id
FROM unnest(CAST(:follower_ids AS bigint[]), CAST(:followed_ids AS bigint[])) AS seen (follower_id, followed_id)
WHERE f.platform = :platform AND f.follower_id = seen.follower_id AND f.followed_id = seen.followed_id
    AND f.ended_at IS NULL
