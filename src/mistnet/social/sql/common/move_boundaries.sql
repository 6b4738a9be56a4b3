-- Note what a step of a sweep proved. Oldest only falls, newest only rises, and only sweeps come here.
-- :user_id bigint, :oldest bigint, :newest bigint, :newest_repost bigint, :found bigint, :now time,
-- :backfilled boolean, :reposts_backfilled boolean
UPDATE accounts
SET oldest_post_id = CASE
        WHEN CAST(:oldest AS bigint) IS NULL OR oldest_post_id <= :oldest THEN oldest_post_id ELSE :oldest END,
    newest_post_id = CASE
        WHEN CAST(:newest AS bigint) IS NULL OR newest_post_id >= :newest THEN newest_post_id ELSE :newest END,
    newest_repost_id = CASE
        WHEN CAST(:newest_repost AS bigint) IS NULL OR newest_repost_id >= :newest_repost THEN newest_repost_id
        ELSE :newest_repost END,
    backfilled_at = CASE WHEN :backfilled THEN COALESCE(backfilled_at, :now) ELSE backfilled_at END,
    reposts_backfilled_at = CASE
        WHEN :reposts_backfilled THEN COALESCE(reposts_backfilled_at, :now) ELSE reposts_backfilled_at END,
    last_fetched_at = :now,
    posts_found = posts_found + COALESCE(CAST(:found AS bigint), 0)
WHERE platform = :platform AND user_id = :user_id
