"""The OpenAPI document of a server: its fixed routes, and one path for each of its methods."""

from typing import Any

from ..errors import JSON

SHORTEST_CALL, LONGEST_CALL = 0.05, 1e9
"""Seconds; what is shorter is over before anybody looks at the clock."""

_TEXT: JSON = {"type": "string"}
_SECONDS: JSON = {"type": ["number", "null"], "minimum": SHORTEST_CALL, "maximum": LONGEST_CALL}
_ID: JSON = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
# A number that the wire can carry.
_WHOLE = {"minimum": -(2**63), "maximum": 2**64 - 1}
_CALL_ID: JSON = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}]}
_VARIABLES: JSON = {
    "type": "object",
    "propertyNames": {"pattern": r"^[^=\u0000]+$"},
    "additionalProperties": {"type": "string", "pattern": r"^[^\u0000]*$"},
}
_ANY: JSON = {}
_NOTHING: JSON = {"type": "null"}
_ERROR: JSON = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": _TEXT, "message": _TEXT, "detail": {"type": "object"}},
        }
    },
}
_SESSION = {
    "name": "X-Session-Id",
    "in": "header",
    "required": False,
    "description": "The session to use; without it, the one that all such callers share.",
    "schema": _TEXT,
}


def openapi(document: JSON) -> JSON:
    """What a generated client needs: every path, its body, and its answer."""
    paths = _fixed(document)
    for method in document["methods"]:
        paths[f"/{method['name']}"] = {"post": _method(method)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": document["name"],
            "version": document["version"],
            "description": document["description"],
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _fixed(document: JSON) -> JSON:
    paths: JSON = {
        "/health": {"get": _get("Whether the server answers.", _object(status=_TEXT))},
        "/schema": {"get": _get("The whole contract.", {"type": "object"})},
        "/metadata": {"get": _get("What this environment is.", {"type": "object"})},
        "/methods": {"get": _get("Everything that can be called.", {"type": "object"})},
        "/call": {"post": _post("Call a method by name.", _call_body(), _success(_ANY))},
        "/sessions": {
            "get": _get("The open sessions.", _object(sessions={"type": "array"})),
            "post": _created("Open a session.", _object(session_id=_TEXT)),
        },
        "/setup": {"post": _post("Put variables in place.", _VARIABLES, _NOTHING)},
        "/cancel": {
            "post": _post("Take back a call.", _closed(_object(request_id=_CALL_ID)), _ANY)
        },
    }
    if document["steps"]:
        step = _object(action=document["action"])
        step["properties"] |= {"timeout_s": _SECONDS, "request_id": _ID}
        paths["/step"] = {"post": _post("Act once.", _closed(step), _result(document))}
        paths["/state"] = {"get": _session_get("Where the episode stands.", document["state"])}
        reset = document["reset"] or {"type": "object"}
        paths["/reset"] = {"post": _post("Begin an episode.", reset, _result(document))}
    return paths


def _result(document: JSON) -> JSON:
    result = _object(
        observation=_ANY,
        terminated={"type": "boolean"},
        truncated={"type": "boolean"},
        done={"type": "boolean"},
        metadata={"type": "object"},
    )
    result["properties"]["reward"] = {"type": ["number", "null"]}
    return result


def _method(method: JSON) -> JSON:
    output = _as_json(method["output"] or _ANY)
    # A reference inside would point past the document's own definitions.
    reply = _success(_ANY if "$defs" in output else output)
    operation = _post(method["description"] or method["name"], method["input"], reply)
    return {**operation, "operationId": method["name"], "tags": [method["kind"]]}


def _success(result: JSON) -> JSON:
    return _object(status={"const": "success"}, result=result)


def _as_json(schema: Any) -> Any:
    """Bytes travel tagged; everything else as its schema says."""
    if isinstance(schema, list):
        return [_as_json(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "binary":
        return _object(**{"$bytes": {"type": "string", "contentEncoding": "base64"}})
    return {key: _as_json(part) for key, part in schema.items()}


def _bounded(schema: Any) -> Any:
    """Whole numbers end where the wire does."""
    if isinstance(schema, list):
        return [_bounded(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    bounds = _WHOLE if schema.get("type") == "integer" else {}
    return bounds | {key: _bounded(part) for key, part in schema.items()}


def _call_body() -> JSON:
    body = _object(method=_TEXT)
    body["properties"] |= {
        "args": {"type": "array"},
        "kwargs": {"type": "object"},
        "timeout_s": _SECONDS,
        "request_id": _ID,
    }
    return _closed(body)


def _closed(body: JSON) -> JSON:
    return {**body, "additionalProperties": False}


def _object(**properties: Any) -> JSON:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _get(summary: str, reply: JSON) -> JSON:
    return {"summary": summary, "responses": {"200": _answer("Done.", reply), **_failures()}}


def _session_get(summary: str, reply: JSON) -> JSON:
    return {**_get(summary, reply), "parameters": [_SESSION]}


def _post(summary: str, body: JSON, reply: JSON) -> JSON:
    content = {"application/json": {"schema": _bounded(body)}}
    # No body says as much as an empty one.
    asked = {"required": bool(body.get("required")), "content": content}
    return {**_session_get(summary, reply), "requestBody": asked}


def _created(summary: str, reply: JSON) -> JSON:
    return {"summary": summary, "responses": {"201": _answer("Made.", reply), **_failures()}}


def _answer(description: str, schema: JSON) -> JSON:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _failures() -> JSON:
    failed = _answer("What went wrong, and whose fault it was.", {})
    failed["content"]["application/json"]["schema"] = {"$ref": "#/components/schemas/Error"}
    return {"default": failed}
