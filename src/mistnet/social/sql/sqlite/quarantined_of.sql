-- How many payloads that could not be read yet name this id.
SELECT count(*)
FROM quarantine q
WHERE q.resolved_at IS NULL AND instr(q.payload, CAST(:named AS blob)) > 0
