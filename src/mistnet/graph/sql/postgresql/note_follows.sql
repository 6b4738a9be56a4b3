-- What became of these edges, for whoever asks how they changed.
-- :follower_ids bigint[], :followed_ids bigint[], :now time, :ingest_id bigint
INSERT INTO follow_events (platform, follower_id, followed_id, kind, cause, at, ingest_id)
SELECT :platform, turned.follower_id, turned.followed_id, :kind, :cause, :now, :ingest_id
FROM unnest(CAST(:follower_ids AS bigint[]), CAST(:followed_ids AS bigint[])) AS turned (follower_id, followed_id)
