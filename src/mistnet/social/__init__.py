"""Users and posts: tracking, sweeps, reply chains, feeds, coverage, search, ingests."""
