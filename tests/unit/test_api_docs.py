"""The API's page tells of every route and of no other."""

from functools import cache
from pathlib import Path

from mistnet.web.application import describe, operations
from mistnet.web.errors import _CODES
from tests.apis import described_routes
from tests.contract.test_api_security import SCOPES

PUSHED = {
    "/webhooks/twitterapi-io": "the key of X",
    "/webhooks/ifttt/new-x-follower": "the secret of IFTTT",
}
PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


@cache
def told_routes() -> frozenset[tuple[str, str]]:
    """Method and path of each described route; to describe them takes a second."""
    return frozenset((method, path) for path, method, _ in operations(describe(described_routes(), [])))


def described(path: str) -> str:
    """A path as the description has it: without the kind of its parts."""
    return path.replace(":id}", "}")


def listed() -> dict[str, str]:
    """The scope of each route as the page has it."""
    table = PAGE.partition("## Routes")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return {row[1].strip().strip("`"): row[2].strip() for row in rows}


def test_every_described_route_is_on_the_page_with_its_scope() -> None:
    assert set(listed()) == {f"{method} {path}" for method, path in told_routes()}
    scopes = {f"{method} {described(path)}": scope for (method, path), scope in SCOPES.items()}
    real = {route: scope.word if scope else PUSHED.get(route[5:], "none") for route, scope in scopes.items()}
    wrong = [
        f"{route}: the page says {said}, not {real[route]}" for route, said in listed().items() if said != real[route]
    ]
    assert wrong == []


def test_every_code_of_a_refusal_is_on_the_page() -> None:
    assert [code for status, code in _CODES.items() if status != 500 and f"| {status} | `{code}` |" not in PAGE] == []


def test_every_route_of_the_api_is_described() -> None:
    hidden = {(method, described(path)) for method, path in SCOPES} - told_routes()
    assert {path for _, path in hidden if path.startswith(("/api", "/webhooks", "/health"))} == {
        "/api/docs",
        "/api/openapi.json",
    }
