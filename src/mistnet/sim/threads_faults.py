"""What an unreliable Threads does to its pages and answers. Which of it, and when, is decided as for X."""

from dataclasses import dataclass, field
from typing import Any

from mistnet.sim.faults import Decision, Fault
from mistnet.sim.service import Answer
from mistnet.sim.users import dump


@dataclass(slots=True, kw_only=True)
class Sheet:
    """One page. `here` leads to this same page again; `above` are the posts of the page before it."""

    records: list[dict[str, Any]] | None
    cursor: str
    here: str
    above: list[dict[str, Any]]
    missing: bool = False
    spoiled: list[str] = field(default_factory=list)

    def body(self, address: str) -> dict[str, Any]:
        """`next` has the asker's token in it, as the real one does."""
        told: dict[str, Any] = {} if self.missing else {"data": self.records}
        if not self.cursor and not self.records:
            return told
        cursors = {"before": self.here, "after": self.cursor or self.here}
        following = {"next": f"{address}&after={self.cursor}"} if self.cursor else {}
        return {**told, "paging": {"cursors": cursors, **following}}


def spoil(sheet: Sheet, fault: Fault, luck: int) -> bool:
    """Do to a page what the fault says; False if this page cannot suffer it."""
    records = sheet.records or []
    match fault:
        case Fault.EMPTY_CLAIMS_MORE:
            sheet.records, sheet.cursor = [], sheet.here
        case Fault.EMPTY_CLAIMS_END if records:
            sheet.records, sheet.cursor = [], ""
        case Fault.DUPLICATE_POSTS if records:
            place = luck % len(records)
            sheet.records = [*records[: place + 1], records[place], *records[place + 1 :]]
        case Fault.REPEATED_PAGE | Fault.STUCK_CEILING if sheet.above:
            sheet.records, sheet.cursor = sheet.above, sheet.here
        case Fault.LOOPING_CURSOR if sheet.cursor:
            sheet.cursor = sheet.here
        case Fault.MISSING_RECORDS:
            sheet.missing = True
        case Fault.NULL_DATA:
            sheet.records = None
        case Fault.MALFORMED_POST if records:
            _malform(sheet, luck)
        case _:
            return False
    return True


def _malform(sheet: Sheet, luck: int) -> None:
    records = sheet.records or []
    place = luck % len(records)
    post = dict(records[place])
    sheet.spoiled.append(str(post["id"]))
    match (luck >> 8) % 5:
        case 0:
            del post["id"]
        case 1:
            post["id"] = None
        case 2:
            post["username"] = ["somebody"]
        case 3:
            post["timestamp"] = 20261001
        case _:
            post["text"] = {"unexpected": True}
    sheet.records = [*records[:place], post, *records[place + 1 :]]


def refusal(decision: Decision) -> Answer:
    match decision.fault:
        case Fault.RATE_LIMITED:
            return _error(403, {"message": "Application request limit reached", "code": 4})
        case Fault.RATE_LIMITED_WITH_WAIT:
            limited = _error(429, {"message": "User request limit reached", "code": 17})
            waits = {**limited.headers, "retry-after": str(1 + decision.luck % 10)}
            return Answer(status=429, headers=waits, body=limited.body)
        case Fault.KEY_REFUSED:
            return _error(400, {"message": "An unexpected error has occurred", "code": 2, "is_transient": True})
        case Fault.SERVER_ERROR:
            status = (500, 502, 503)[decision.luck % 3]
            return _error(status, {"message": "An unknown error occurred", "code": 1})
        case _:
            page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
            headers = {"content-type": "text/html", "content-length": str(len(page))}
            return Answer(status=502, headers=headers, body=page)


def _error(status: int, told: dict[str, Any]) -> Answer:
    body = dump({"error": {"type": "OAuthException", **told, "fbtrace_id": "AbCdEf"}}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return Answer(status=status, headers=headers, body=body)
