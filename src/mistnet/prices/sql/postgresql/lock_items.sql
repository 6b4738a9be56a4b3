-- Lock items, so that nothing else changes their points. All writers lock in one order: none waits in a circle.
SELECT i.id, i.currency FROM items i WHERE i.id IN each(:item_ids bigint) ORDER BY i.id FOR NO KEY UPDATE
