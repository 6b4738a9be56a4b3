-- The valuations of these items as they are now. The columns are the fields of a valuation, in their order.
SELECT
    v.item_id, v.estimate, v.low, v.high, v.currency, v.points, v.confidence, v.newest_at, v.points_left_out,
    v.carriers, v.left_out
FROM valuations v
WHERE v.item_id IN each(:item_ids bigint)
