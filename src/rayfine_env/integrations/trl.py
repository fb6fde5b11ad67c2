"""Environments for TRL: `GRPOTrainer(environment_factory=environment_factory("my_env"))`.

TRL finds tools as functions on the class and reads their signatures and docstrings, so a class is
made from the environment's schema, with one real method for each tool.
"""

import inspect
import keyword
import threading
from collections.abc import Callable
from typing import Any, Literal

from ..authoring.load import Target
from ..client.sync import SyncSession
from ..errors import JSON, ActionError, ConfigError, EnvError, NotFound, RayfineError
from ..launch import EnvironmentWrapper, load_env
from ..wire import encode_json

STEP = "step"
_RESERVED = ("reset", "get_reward")
_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool}
_TOLD = (ActionError, EnvError, NotFound)
# One instance for all that a process makes of the same factory: its sessions keep them apart.
# And one class: TRL asks only environments of the very class that it saw first for their reward.
_loaded: dict[str, tuple[EnvironmentWrapper[Any, Any, Any], Callable[..., Any]]] = {}
_playing: "set[Playing]" = set()
_one_at_a_time = threading.Lock()


class environment_factory:
    """What TRL's `environment_factory` wants: a callable that makes environments, picklable.

    Args:
        target: What `load_env` takes by name; a class cannot travel to another process.
        failed: What a failed episode is worth. "mask" gives None, which TRL leaves out of the
            loss and of its group's baseline; a number scores it.
        **options: For `load_env`.
    """

    def __init__(
        self, target: Target, *, failed: Literal["mask"] | float = "mask", **options: Any
    ) -> None:
        if isinstance(target, type):
            raise ConfigError("name the environment by its file or module: a trainer's workers "
                              "make it again in their own processes")  # fmt: skip
        self.target = str(target)
        self.failed = failed
        self.options = options

    def __call__(self) -> Any:
        env, kind = self._loaded()
        return kind(env.session(), env.describe(), self.failed)

    def _loaded(self) -> tuple[EnvironmentWrapper[Any, Any, Any], Callable[..., Any]]:
        key = repr((self.target, sorted(self.options.items())))
        with _one_at_a_time:
            if key not in _loaded:
                env: EnvironmentWrapper[Any, Any, Any] = load_env(self.target, **self.options)
                _loaded[key] = (env, _class_of(env.describe()))
            return _loaded[key]


def close_all() -> None:
    """End every environment that factories of this process have started; also done at exit."""
    with _one_at_a_time:
        for playing in _playing:
            playing.session.detach()
        _playing.clear()
        for env, _ in _loaded.values():
            env.cleanup()
        _loaded.clear()


class Playing:
    """What is behind the methods of an environment that TRL plays."""

    def __init__(
        self, session: SyncSession[Any, Any, Any], about: JSON, failed: Literal["mask"] | float
    ) -> None:
        self.session = session
        self.failed: float | None = None if failed == "mask" else failed
        self.about = about
        self.rewards: list[float] = []
        self.error: RayfineError | None = None
        self.done = False
        _playing.add(self)

    def reset(self, given: JSON) -> str | None:
        """Begin; only what the environment's own reset takes is handed to it."""
        self.rewards, self.error, self.done = [], None, False
        schema = self.about["reset"]
        if schema is None:
            self.session.close()
            self._begin_anew()
            return None
        taken = given if schema.get("additionalProperties") else {
            key: value for key, value in given.items() if key in schema["properties"]
        }  # fmt: skip
        try:
            return _text(self.session.reset(**taken).observation)
        except RayfineError as exc:
            return self._failed(exc)

    def call(self, name: str, arguments: JSON) -> str:
        if self.error is not None:
            return "the episode has failed"
        if self.done:
            return "the episode is over"
        try:
            return self._step(arguments) if name == STEP and self.about["steps"] else _text(
                self.session.call_tool(name, arguments)
            )  # fmt: skip
        except _TOLD:
            raise  # TRL tells the model, and counts a failed call
        except RayfineError as exc:
            return self._failed(exc)

    def _step(self, arguments: JSON) -> str:
        whole = self.about["action"].get("type") == "object"
        result = self.session.step(arguments if whole else arguments["action"])
        self.done = result.done
        if result.reward is not None:
            self.rewards.append(result.reward)
        return _text(result.observation)

    def _failed(self, exc: RayfineError) -> str:
        """What carries the environment failed: no score, and a fresh session for the next."""
        self.error = exc
        self._begin_anew()
        return f"the environment failed: {exc.message}"

    def _begin_anew(self) -> None:
        self.session.detach()
        self.session = self.session._other("")

    def reward(self) -> float | None:
        if self.error is not None:
            return self.failed
        try:
            methods = [self.session.call(name) for name in _reward_methods(self.about)]
        except RayfineError as exc:
            self._failed(exc)
            return self.failed
        given = [*self.rewards, *(float(value) for value in methods if value is not None)]
        return sum(given) if given else None


def _reward_methods(about: JSON) -> list[str]:
    return [
        method["name"]
        for method in about["methods"]
        if method["kind"] == "reward" and not method["input"].get("required")
    ]


def _class_of(about: JSON) -> Callable[..., Any]:
    """A class with one real method for each tool, and for `step` where there is one."""

    def __init__(self: Any, session: SyncSession[Any, Any, Any], about: JSON, failed: Any) -> None:
        self._playing = Playing(session, about, failed)

    def reset(self: Any, **given: Any) -> str | None:
        found: str | None = self._playing.reset(given)
        return found

    def get_reward(self: Any) -> float | None:
        found: float | None = self._playing.reward()
        return found

    def __reduce__(self: Any) -> Any:
        raise ConfigError("a live environment cannot be pickled; pickle its factory")

    body: JSON = {"__init__": __init__, "reset": reset, "get_reward": get_reward,
                  "__reduce__": __reduce__, "__doc__": about["description"]}  # fmt: skip
    for name, text, schema in _tools(about):
        if name in _RESERVED or not name.isidentifier() or keyword.iskeyword(name):
            raise ConfigError(f"TRL cannot have a tool named {name!r}; rename it")
        body[name] = _method(name, text, schema)
    title = "".join(part.capitalize() for part in about["name"].replace("-", "_").split("_"))
    return type(title if title.isidentifier() else "RayfineEnvironment", (), body)


def _tools(about: JSON) -> list[tuple[str, str, JSON]]:
    found = [
        (method["name"], method["description"], method["input"])
        for method in about["methods"]
        if method["kind"] == "tool"
    ]
    if about["steps"]:
        action = about["action"]
        whole = action.get("type") == "object"
        schema = action if whole else {"properties": {"action": action}, "required": ["action"]}
        found.append((STEP, "Act once in the environment.", schema))
    return found


def _method(name: str, text: str, schema: JSON) -> Callable[..., str]:
    def method(self: Any, **arguments: Any) -> str:
        said: str = self._playing.call(name, arguments)
        return said

    properties, required = schema.get("properties", {}), schema.get("required", ())
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [_parameter(n, prop, n in required) for n, prop in properties.items()]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    made: Any = method
    made.__name__ = made.__qualname__ = name
    made.__signature__ = inspect.Signature([receiver, *parameters], return_annotation=str)
    made.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": str}
    lines = [f"    {n}: {prop.get('description') or n}" for n, prop in properties.items()]
    arguments = "\n\nArgs:\n" + "\n".join(lines) if lines else ""
    made.__doc__ = f"{text or name}{arguments}\n\nReturns:\n    What came of it."
    return method


def _parameter(name: str, schema: JSON, required: bool) -> inspect.Parameter:
    default = inspect.Parameter.empty if required else schema.get("default")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=_annotation(schema))


def _annotation(schema: JSON) -> Any:
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if schema.get("type") == "array":
        return list[_annotation(schema.get("items", {}))]  # type: ignore[misc]
    if schema.get("type") == "object" or "properties" in schema:
        return dict
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        found: Any = None
        for option in options:
            kind = None if option.get("type") == "null" else _annotation(option)
            found = kind if option is options[0] else found | kind
        return found
    return _TYPES.get(schema.get("type", ""), Any)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()
