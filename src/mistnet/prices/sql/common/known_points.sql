-- All points of these items, as far as valuations need them.
SELECT
    p.id, p.item_id, p.source, p.dedupe_key, p.kind, p.amount, p.currency, p.match_strength, p.observed_at, p.doubt
FROM price_points p
WHERE p.item_id IN each(:item_ids bigint)
