"""The OpenAPI document, with every error response, and a page of the dashboard that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response

from mistnet.web.auth import READS
from mistnet.web.errors import ErrorDocument, refusals
from mistnet.web.pages.render import ReaderPage

router = APIRouter(include_in_schema=False, dependencies=READS)

_REF: Final = {"$ref": "#/components/schemas/ErrorDocument"}
_ABOUT: Final = (
    "Everything that mistnet collected, and everything that an operator does. Ids are strings, times are UTC. "
    "Lists come in pages: `next` is the cursor of the next page. Every error has the same shape."
)


def describe(service: FastAPI, platforms: Sequence[str]) -> Mapping[str, Any]:
    """Make the document once. Invalid input is 400 here, and errors of the middleware are listed at every route."""
    if service.openapi_schema is None:
        found = get_openapi(title=service.title, version=service.version, description=_ABOUT, routes=service.routes)
        error = ErrorDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        found["components"]["schemas"] |= {**error.pop("$defs"), "ErrorDocument": error}
        # The framework describes its own errors, which our handlers replace.
        for unused in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(unused, None)
        for path, method, operation in operations(found):
            _add_refusals(path, method, operation)
            # Name the platforms that a query may ask for: which there are depends on the app's sources.
            for parameter in operation.get("parameters", ()):
                if (parameter["in"], parameter["name"]) == ("query", "platform"):
                    for choice in parameter["schema"]["anyOf"]:
                        if choice["type"] == "string":
                            del choice["pattern"]
                            choice["enum"] = list(platforms)
        service.openapi_schema = found
    return service.openapi_schema


def operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each operation with its path and method."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def _add_refusals(path: str, method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if answers.get("422", {}).get("description") == "Validation Error":
        del answers["422"]  # the framework's own, which never occurs
    statuses = []
    if "{" in path and method != "PUT":
        statuses.append(404)  # what the path names may not exist, unless the request creates it
    if "parameters" in operation or "requestBody" in operation:
        statuses.append(400)
    if "requestBody" in operation:
        statuses += [413, 415] if path.startswith("/api") else [413]
    if operation.get("security"):
        statuses += [401] if path.startswith("/webhooks") else [401, 403, 429]
    # Every other route needs the database, which may not answer.
    if path != "/healthz":
        statuses.append(503)
    for status, answer in refusals(*statuses).items():
        content = {"application/json": {"schema": _REF}}
        # A route that describes this status itself keeps its own words.
        answers.setdefault(str(status), {"description": answer["description"], "content": content})


@router.get("/api/openapi.json")
async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(describe(request.app, request.app.state.mistnet.platforms))


@router.get("/api/docs")
async def docs(page: ReaderPage, request: Request) -> Response:
    """Every operation, grouped by its tag. Groups are closed: there are over a hundred operations."""
    schema = describe(request.app, page.app.platforms)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for path, method, operation in operations(schema):
        answers = [
            (status, answer["description"], _field_names(_json_schema(answer), schema))
            for status, answer in operation["responses"].items()
        ]
        sent = _field_names(_json_schema(operation.get("requestBody", {})), schema)
        about = {"path": path, "method": method, "operation": operation, "sent": sent, "answers": answers}
        groups.setdefault(operation.get("tags", ["other"])[0], []).append(about)
    return page.render("api.html", about=schema["info"]["description"], groups=groups)


def _json_schema(content: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = content.get("content", {}).get("application/json", {}).get("schema", {})
    return next((choice for choice in found.get("anyOf", ()) if "$ref" in choice), found)


def _field_names(described: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The names of an object's fields."""
    if "$ref" in described:
        described = schema["components"]["schemas"][described["$ref"].rpartition("/")[2]]
    return ", ".join(described.get("properties", ()))
