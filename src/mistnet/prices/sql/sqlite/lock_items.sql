-- The currencies of items. Only one transaction writes at a time, so nothing else changes their points.
SELECT i.id, i.currency FROM items i WHERE i.id IN each(:item_ids bigint) ORDER BY i.id
