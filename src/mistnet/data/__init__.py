"""What was collected, as typed tables: read from Python, and exported with a codebook."""
