-- Whether the server takes writes, how many connections it has left for us, and how large the database is.
-- Who may not see the sessions of others is told only to which database each belongs.
SELECT pg_is_in_recovery() AS in_recovery,
    current_setting('transaction_read_only') = 'on' AS read_only,
    (SELECT count(*) FROM pg_stat_activity a
        WHERE a.backend_type = 'client backend' OR a.backend_type IS NULL AND a.datid IS NOT NULL) AS connections,
    CAST(current_setting('max_connections') AS integer)
        - CAST(current_setting('superuser_reserved_connections') AS integer)
        - COALESCE(CAST(current_setting('reserved_connections', TRUE) AS integer), 0) AS most_connections,
    pg_database_size(current_database()) AS size
