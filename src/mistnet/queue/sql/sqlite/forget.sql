-- Remove jobs that were just copied into the history.
DELETE FROM jobs WHERE id IN (SELECT value FROM json_each(:ids))
