"""Policies and rubrics by name, as a command line gives them."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError, LoadError, boundary
from .directory import read_episodes
from .policy import Policy, RandomPolicy, Replay, Scripted, as_policy
from .trajectory import ToolCall


def policy_named(name: str, base_url: str | None = None) -> Policy:
    """random, script:FILE, replay:RUN_DIR, openai:MODEL, file.py:attribute or module:attribute."""
    kind, _, rest = name.partition(":")
    if kind != "openai" and base_url is not None:
        raise ConfigError(f"--base-url is for openai:MODEL, not for the policy {name!r}")
    if name == "random":
        return RandomPolicy()
    if kind == "script" and rest:
        return Scripted(_moves(Path(rest)), name)
    if kind == "replay" and rest:
        return Replay(read_episodes(Path(rest)), name)
    if kind == "openai" and rest:
        from .chat import ChatPolicy

        return ChatPolicy(rest, base_url)
    return as_policy(attribute_named(name, "a policy is random, person, script:FILE, "
                                           "replay:RUN_DIR, openai:MODEL"))  # fmt: skip


def _moves(path: Path) -> Any:
    """JSON: a list of moves, or an object with one list for each task's id."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[Any] | dict[str, list[Any]])
    except (OSError, msgspec.MsgspecError) as exc:
        raise ConfigError(f"the script {path} cannot be read: {exc}") from exc
    if isinstance(found, dict):
        return {task: [_move(move) for move in moves] for task, moves in found.items()}
    return [_move(move) for move in found]


def _move(move: Any) -> Any:
    """An action as it is; {"tool": name, "arguments": …} is a call."""
    if isinstance(move, dict) and "tool" in move and move.keys() <= {"tool", "arguments"}:
        return ToolCall(move["tool"], move.get("arguments", {}))
    return move


def attribute_named(name: str, known: str) -> Any:
    """What `file.py:attribute` or `module:attribute` names."""
    where, colon, attribute = name.rpartition(":")
    if not colon or not attribute.isidentifier():
        raise ConfigError(f"{name!r} is not known: {known}, file.py:name or module:name")
    with boundary(LoadError, f"importing {where}"):
        module = _from_file(Path(where)) if where.endswith(".py") else _from_name(where)
    if not hasattr(module, attribute):
        raise ConfigError(f"{where} has no {attribute!r}")
    return getattr(module, attribute)


def _from_name(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module
