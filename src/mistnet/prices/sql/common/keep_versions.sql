-- Copy points into versions before they are replaced, each under the next number of its own.
-- :now time
INSERT INTO price_point_versions (
    point_id, nr, kind, amount, currency, match_strength, observed_at, replaced_at
)
SELECT
    p.id, (SELECT coalesce(max(v.nr), 0) + 1 FROM price_point_versions v WHERE v.point_id = p.id),
    p.kind, p.amount, p.currency, p.match_strength, p.observed_at, :now
FROM price_points p
WHERE p.id IN each(:point_ids bigint)
