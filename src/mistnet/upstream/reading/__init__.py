"""Reads pages that come from strangers, in processes that may be killed.

A page can be made so that reading it takes hours or all memory. Read inside a worker it would stop every job of that
worker, and then every job of the next. So workers hand pages to child processes with limits on time and memory.
"""
