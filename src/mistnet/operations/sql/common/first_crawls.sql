-- How long links waited for their first crawl: the latest :limit crawls since then, without those of links seen before.
-- :since time, :limit integer
SELECT l.lane, l.first_seen_at AS seen_at, c.at
FROM (
    SELECT recent.id, recent.link_id, recent.at
    FROM crawls recent
    WHERE recent.at >= :since
    ORDER BY recent.at DESC
    LIMIT :limit
) c
JOIN links l ON l.id = c.link_id
WHERE NOT EXISTS (SELECT 1 FROM crawls earlier WHERE earlier.link_id = c.link_id AND earlier.id < c.id)
