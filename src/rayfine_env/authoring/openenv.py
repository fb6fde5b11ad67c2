"""Environments written for OpenEnv, taken by their shape: OpenEnv itself is never imported here."""

import functools
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from ..errors import ActionError, EnvError, LoadError
from .contract import public_functions
from .environment import Environment, tool
from .schema import JSONSignature

MANIFEST = "openenv.yaml"
_BASE = "openenv.core.env_server"
_ITS_OWN = {"reset", "step", "reset_async", "step_async", "get_metadata", "render_web"}
_TOOL_STEPS = {"list_tools": "ListToolsAction", "call_tool": "CallToolAction"}


def is_openenv(cls: type[Any]) -> bool:
    """Whether a class stands on OpenEnv's own Environment."""
    return any(
        base.__name__ == "Environment" and base.__module__.startswith(_BASE)
        for base in cls.__mro__[1:]
    )


def entry_of(package: Path) -> tuple[str, Path]:
    """The name of an OpenEnv package, and the file of its environment."""
    named = re.search(r"^name:\s*[\"']?([\w.-]+)", (package / MANIFEST).read_text(), re.M)
    found = sorted((package / "server").glob("*_environment.py"))
    if len(found) != 1:
        raise LoadError(
            f"{package} has {len(found)} files like server/*_environment.py; name the one to serve "
            "as FILE:Class"
        )
    return named[1] if named else package.name, found[0]


def from_openenv(cls: type[Any]) -> type[Environment[Any, Any, Any]]:
    """An Environment that makes theirs and hands its calls on."""

    def __init__(self: Any) -> None:
        self._theirs = cls()

    def close(self: Any) -> Any:
        return self._theirs.close()

    content: dict[str, Any] = {
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
        "__init__": __init__,
        "close": close,
        "reset": _handed_on(cls, "reset"),
        "step": _handed_on(cls, "step"),
        "state": property(functools.wraps(_getter(cls))(lambda self: self._theirs.state)),
    }
    others = {name: fn for name, fn in public_functions(cls) if name not in _ITS_OWN | {"close"}}
    content |= {name: _delegate(name, fn) for name, fn in others.items()}
    if hasattr(cls, "mcp_session"):
        content |= {"step": _tool_step, **_tools(cls)}
    return type(cls.__name__, (Environment,), content)


def _getter(cls: type[Any]) -> Any:
    found = inspect.getattr_static(cls, "state", None)
    if not isinstance(found, property) or found.fget is None:
        raise LoadError(f"{cls.__name__}.state is no property; OpenEnv's environments have one")
    return found.fget


def _handed_on(cls: type[Any], name: str) -> Any:
    """Its async form, where the author wrote one; else the sync one."""
    own = getattr(cls, f"{name}_async", None)
    is_async = own is not None and not own.__module__.startswith(_BASE)
    chosen = f"{name}_async" if is_async else name
    return _delegate(chosen, getattr(cls, chosen))


def _delegate(name: str, fn: Any) -> Any:
    @functools.wraps(fn)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._theirs, name)(*args, **kwargs)

    return call


# -- its environments with MCP tools


def _action(kind: str, **fields: Any) -> Any:
    """Its own model of a tool step, from the module that its author has imported."""
    return getattr(sys.modules[f"{_BASE}.mcp_types"], kind)(**fields)


def _tool_step(self: Any, action: dict[str, Any]) -> Any:
    kind = _TOOL_STEPS.get(str(action.get("type")))
    if kind is None:
        raise ActionError(f"an action here has a `type`, one of {sorted(_TOOL_STEPS)}")
    return self._theirs.step(_action(kind, **{k: v for k, v in action.items() if k != "type"}))


def _tools(cls: type[Any]) -> dict[str, Any]:
    """Each of its MCP tools, as a tool of ours; they are known only once it is made."""
    made = cls()
    try:
        listed = made.step(_action("ListToolsAction")).tools
    finally:
        made.close()
    return {found.name: _tool(found) for found in listed}


def _tool(found: Any) -> Any:
    name = found.name

    def call(self: Any, **arguments: Any) -> Any:
        seen = self._theirs.step(_action("CallToolAction", tool_name=name, arguments=arguments))
        if seen.error is not None:
            raise EnvError(f"{name}: {seen.error.message}")
        return getattr(seen.result, "data", seen.result)

    call.__rayfine_signature__ = JSONSignature(  # type: ignore[attr-defined]
        name, found.input_schema or {"type": "object"}
    )
    return tool(name=name, description=found.description or "")(call)
