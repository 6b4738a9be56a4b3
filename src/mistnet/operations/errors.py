"""Errors of runs."""

from __future__ import annotations

from mistnet.kit.errors import UsageError


class BadRun(UsageError):
    """A run cannot be made of this request. `field` is the part that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class CapTooLow(BadRun):
    """The credits of a run do not pay for one page of each of its accounts."""

    def __init__(self, least: int, accounts: int) -> None:
        of_each = "the price of a page" if accounts == 1 else f"the price of a page of each of {accounts:,} accounts"
        super().__init__("max_credits", f"must be at least {least:,}, {of_each}")
        self.least, self.accounts = least, accounts


class RunInProgress(UsageError):
    """Another run is unfinished, and only one may run at a time."""

    def __init__(self, run_id: str, state: str = "is still running") -> None:
        super().__init__(
            f"the run {run_id} {state}; `mistnet runs show {run_id}` shows its progress, "
            f"`mistnet runs cancel {run_id}` or `POST /api/runs/{run_id}/cancel` ends it"
        )
        self.run_id = run_id


class NeedsConfirmation(UsageError):
    """An operation will probably cost more than `confirm_credits`."""

    def __init__(self, credits_due: int, confirm_credits: int) -> None:
        super().__init__(
            f"this will probably cost {credits_due:,} credits (US$ {credits_due / 100_000:,.2f}), more than the "
            f"{confirm_credits:,} of the setting `confirm_credits`. Confirm it: --yes on the command line, "
            f'"confirm": true in a request'
        )
        self.credits_due, self.confirm_credits = credits_due, confirm_credits


class RunNotFound(UsageError):
    """There is no such run, or it was deleted."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"there is no run {run_id[:80]!r}; finished runs are kept for `run_hours`. See `mistnet runs list`"
        )
        self.run_id = run_id
