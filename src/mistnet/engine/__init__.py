"""The durable job queue's moving parts: worker, executor, settler, lease keeper, caretaker."""
