-- Insert new edges. Those that are stored already stay as they are. Returns the inserted ones.
-- The foreign keys refuse an edge with an unknown user, and with it the whole settlement.
-- :now time, :ingest_id bigint
INSERT INTO follows (platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in)
SELECT :platform, seen.follower_id, seen.followed_id, :now, :now, :ingest_id
FROM each(:edges) AS seen (follower_id bigint, followed_id bigint)
WHERE true
ON CONFLICT (platform, follower_id, followed_id) DO NOTHING
RETURNING follower_id, followed_id
