"""The OpenAPI document, with every error response, and a page that shows it without external scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse

from mistnet.web.auth import READS
from mistnet.web.errors import ErrorDocument, refusals

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
        for unused in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(unused, None)
        for path, _, operation in operations(found):
            _complete(path, operation)
            _list_platforms(operation, platforms)
        service.openapi_schema = found
    return service.openapi_schema


def operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each operation with its path and method."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def _complete(path: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if answers.get("422", {}).get("description") == "Validation Error":
        del answers["422"]  # the framework's own, which never occurs
    statuses = []
    if "parameters" in operation or "requestBody" in operation:
        statuses.append(400)
    if "requestBody" in operation:
        statuses += [413, 415] if path.startswith("/api") else [413]
    if operation.get("security"):
        statuses += [401] if path.startswith("/webhooks") else [401, 403, 429]
    if path != "/healthz":
        statuses.append(503)
    for status, answer in refusals(*statuses).items():
        content = {"application/json": {"schema": _REF}}
        answers.setdefault(str(status), {"description": answer["description"], "content": content})


def _list_platforms(operation: Mapping[str, Any], platforms: Sequence[str]) -> None:
    """Name the platforms that a query may ask for: which there are depends on the app's sources."""
    for parameter in operation.get("parameters", ()):
        if (parameter["in"], parameter["name"]) == ("query", "platform"):
            for choice in parameter["schema"]["anyOf"]:
                if choice["type"] == "string":
                    del choice["pattern"]
                    choice["enum"] = list(platforms)


@router.get("/api/openapi.json")
async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(describe(request.app, request.app.state.mistnet.platforms))


@router.get("/api/docs")
async def docs(request: Request) -> HTMLResponse:
    """Every operation on one plain page."""
    schema = describe(request.app, request.app.state.mistnet.platforms)
    listed = "".join(_section(path, method, operation, schema) for path, method, operation in operations(schema))
    title = f"{escape(schema['info']['title'])} {escape(schema['info']['version'])}"
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} API</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{title} API</h1><p>{_marked(_ABOUT)}</p>"
        f'<p><a href="/api/openapi.json">openapi.json</a></p>{listed}</main></body></html>'
    )


_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:0}"
    "main{max-width:60rem;margin:auto;padding:1rem}section{border-top:1px solid #8886;padding:.5rem 0}"
    "h2{font-size:1rem;font-family:ui-monospace,monospace;overflow-wrap:anywhere}h2 b{color:#0a7}"
    "table{border-collapse:collapse;font-size:.9rem}td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
    "code,pre{font-family:ui-monospace,monospace;font-size:.85rem}pre{overflow:auto}"
)


def _section(path: str, method: str, operation: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    parameters = "".join(_parameter(each) for each in operation.get("parameters", ()))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answers = "".join(
        f"<tr><td><code>{status}</code></td><td>{_marked(answer.get('description', ''))}</td>"
        f"<td>{_shape(answer.get('content', {}).get('application/json', {}).get('schema'), schema)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    sent = f"<p>Body: {_shape(body, schema)}</p>" if body else ""
    return (
        f"<section><h2><b>{method}</b> {escape(path)}</h2><p>{_marked(operation.get('description', ''))}</p>"
        f"<table>{parameters}</table>{sent}<details><summary>Answers</summary><table>{answers}</table></details></section>"
    )


def _parameter(parameter: Mapping[str, Any]) -> str:
    shown = parameter["schema"]
    kind = shown.get("type") or " or ".join(each.get("type", "") for each in shown.get("anyOf", ()))
    required = ", required" if parameter.get("required") else ""
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{parameter['in']}, {escape(kind)}"
        f"{required}</td><td>{_marked(parameter.get('description', ''))}</td></tr>"
    )


def _shape(shown: Mapping[str, Any] | None, schema: Mapping[str, Any]) -> str:
    """The names of an object's fields."""
    for choice in (shown or {}).get("anyOf", ()):
        if "$ref" in choice:
            shown = choice
    if shown and "$ref" in shown:
        shown = schema["components"]["schemas"][shown["$ref"].rpartition("/")[2]]
    names = ", ".join(escape(name) for name in (shown or {}).get("properties", ()))
    return f"<code>{{{names}}}</code>" if names else ""


def _marked(text: str) -> str:
    """Plain text with `code` in it."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
