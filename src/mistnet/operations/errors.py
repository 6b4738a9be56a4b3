"""Errors of runs."""

from __future__ import annotations

from mistnet.kit.errors import UsageError


class BadRun(UsageError):
    """A run was asked for that cannot be made; says which part of the request is at fault."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class CapTooLow(BadRun):
    """What a run may cost does not buy a page of each of its accounts."""

    def __init__(self, least: int, accounts: int) -> None:
        of_each = "the price of a page" if accounts == 1 else f"the price of a page of each of {accounts:,} accounts"
        super().__init__("max_credits", f"must be at least {least:,}, {of_each}")
        self.least, self.accounts = least, accounts


class RunInProgress(UsageError):
    """One run at a time, and one is under way."""

    def __init__(self, run_id: str, stands: str = "is still going") -> None:
        super().__init__(
            f"the run {run_id} {stands}; `mistnet runs show {run_id}` tells how far it is, "
            f"`mistnet runs cancel {run_id}` or `POST /api/runs/{run_id}/cancel` ends it"
        )
        self.run_id = run_id


class NeedsConfirmation(UsageError):
    """Something is likely to cost more than may be spent without a confirmation."""

    def __init__(self, credits_due: int, confirm_credits: int) -> None:
        super().__init__(
            f"this is likely to cost {credits_due:,} credits (US$ {credits_due / 100_000:,.2f}), more than the "
            f"{confirm_credits:,} of the setting `confirm_credits`. Confirm it: --yes on the command line, "
            f'"confirm": true in a request'
        )
        self.credits_due, self.confirm_credits = credits_due, confirm_credits


class RunNotFound(UsageError):
    """There is no such run, or not any more."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"there is no run {run_id[:80]!r}; finished ones are kept for `run_hours`, `mistnet runs list` shows them"
        )
        self.run_id = run_id
