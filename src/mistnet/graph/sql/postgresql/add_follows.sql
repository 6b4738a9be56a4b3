-- Edges that are new; those that are there already stay as they are. Tells which it added.
-- An end that is no stored user is refused by its foreign key, and all of it with it.
-- :follower_ids bigint[], :followed_ids bigint[], :now time, :ingest_id bigint
INSERT INTO follows (platform, follower_id, followed_id, first_seen_at, last_seen_at, seen_in)
SELECT :platform, seen.follower_id, seen.followed_id, :now, :now, :ingest_id
FROM unnest(CAST(:follower_ids AS bigint[]), CAST(:followed_ids AS bigint[])) AS seen (follower_id, followed_id)
ON CONFLICT (platform, follower_id, followed_id) DO NOTHING
RETURNING follower_id, followed_id
