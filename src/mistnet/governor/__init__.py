"""Politeness and money: rate limits, circuit breakers, budgets, the ledger of calls."""
