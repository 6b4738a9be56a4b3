"""The durable job queue. It knows nothing of what the jobs do."""
