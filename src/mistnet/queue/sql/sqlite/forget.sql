-- Remove jobs that were just copied into the history.
DELETE FROM jobs WHERE id IN each(:ids bigint)
