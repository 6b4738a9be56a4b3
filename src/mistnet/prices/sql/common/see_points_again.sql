-- Note that fetches saw these points again, as they are stored.
-- :now time, :fetches integer
UPDATE price_points SET last_seen_at = :now, times_seen = times_seen + :fetches WHERE id IN each(:point_ids bigint)
