-- Edges that had ended and are seen again. The guard lets one of two writers win, and it alone tells of them.
-- :follower_ids bigint[], :followed_ids bigint[], :now time, :ingest_id bigint
UPDATE follows f
SET ended_at = NULL, missed_in = NULL, last_seen_at = :now, seen_in = :ingest_id
FROM unnest(CAST(:follower_ids AS bigint[]), CAST(:followed_ids AS bigint[])) AS seen (follower_id, followed_id)
WHERE f.platform = :platform AND f.follower_id = seen.follower_id AND f.followed_id = seen.followed_id
    AND f.ended_at IS NOT NULL
RETURNING f.follower_id, f.followed_id
