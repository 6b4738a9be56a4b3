-- How many payloads that could not be read yet name this id.
SELECT count(*)
FROM quarantine q
WHERE q.resolved_at IS NULL AND position(convert_to(:named, 'UTF8') IN q.payload) > 0
