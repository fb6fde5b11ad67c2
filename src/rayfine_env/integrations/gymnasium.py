"""Any environment as a Gymnasium Env, and many sessions of one as a vector environment."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..authoring.load import Target
from ..client import background
from ..errors import JSON, ConfigError, MissingExtra
from ..launch import EnvironmentWrapper, async_session, load_env

try:
    import gymnasium
    import numpy as np
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
except ImportError as exc:
    raise MissingExtra.named("Gymnasium", "gym") from exc

if TYPE_CHECKING:
    from ..client.session import Session

_LETTERS = "".join(map(chr, range(32, 127)))
_LONGEST = 1 << 16
Convert = Callable[[Any], Any]


class Shape:
    """A space, and the way between its samples and the environment's plain data."""

    def __init__(self, space: "spaces.Space[Any]", to_plain: Convert, to_sample: Convert) -> None:
        self.space = space
        self.to_plain = to_plain
        self.to_sample = to_sample


def shape_of(schema: JSON, root: JSON | None = None) -> Shape:
    """The Gymnasium space of a JSON Schema."""
    root = schema if root is None else root
    if "$ref" in schema:
        return shape_of(_found(root, schema["$ref"]), root)
    if "const" in schema or "enum" in schema:
        return _choice(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "object" if "properties" in schema else "any")
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise ConfigError(
            f"Gymnasium has no space for {_short(schema)}; give the field one type, or pass "
            "action_space and observation_space yourself"
        )
    return make(schema, root)


def _found(root: JSON, ref: str) -> JSON:
    found: Any = root
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def _short(schema: JSON) -> str:
    return str({key: schema[key] for key in list(schema)[:3]})[:80]


def _choice(values: list[Any]) -> Shape:
    return Shape(
        spaces.Discrete(len(values)),
        lambda sample: values[int(sample)],
        lambda plain: np.int64(values.index(plain)),
    )


def _boolean(schema: JSON, root: JSON) -> Shape:
    return Shape(spaces.Discrete(2), bool, np.int64)


def _integer(schema: JSON, root: JSON) -> Shape:
    low, high = _bounds(schema, 2**62, 1)
    if high - low < 2**31:
        space: Any = spaces.Discrete(int(high - low) + 1, start=int(low))
        return Shape(space, int, np.int64)
    box: Any = spaces.Box(low, high, (), np.int64)
    return Shape(box, int, lambda plain: np.asarray(plain, np.int64))


def _number(schema: JSON, root: JSON) -> Shape:
    box: Any = spaces.Box(*_bounds(schema, np.inf, 0), (), np.float64)
    return Shape(box, float, lambda plain: np.asarray(plain, np.float64))


def _bounds(schema: JSON, far: float, step: int) -> tuple[float, float]:
    """The least and the greatest; what is excluded is `step` beyond them."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", -far - step) + step)
    high = schema.get("maximum", schema.get("exclusiveMaximum", far + step) - step)
    return low, high


def _string(schema: JSON, root: JSON) -> Shape:
    least, most = schema.get("minLength", 0), schema.get("maxLength", _LONGEST)
    space = spaces.Text(min_length=least, max_length=most, charset=_LETTERS)
    return Shape(space, str, _seen)


def _seen(plain: str) -> str:
    """What Text's alphabet has no letter for is a question mark."""
    return "".join(letter if letter in _LETTERS else "?" for letter in plain[:_LONGEST])


def _array(schema: JSON, root: JSON) -> Shape:
    if "prefixItems" in schema:
        parts = [shape_of(item, root) for item in schema["prefixItems"]]
        return Shape(
            spaces.Tuple([part.space for part in parts]),
            lambda sample: [p.to_plain(s) for p, s in zip(parts, sample, strict=True)],
            lambda plain: tuple(p.to_sample(s) for p, s in zip(parts, plain, strict=True)),
        )
    item = shape_of(schema.get("items", {}), root)
    size = schema.get("maxItems")
    if size is not None and size == schema.get("minItems") and isinstance(item.space, spaces.Box):
        low, high, dtype = float(item.space.low), float(item.space.high), item.space.dtype
        box = spaces.Box(low, high, (size,), dtype)
        return Shape(box, lambda s: s.tolist(), lambda plain: np.asarray(plain, dtype))
    return Shape(
        spaces.Sequence(item.space),
        lambda sample: [item.to_plain(each) for each in sample],
        lambda plain: tuple(item.to_sample(each) for each in plain),
    )


def _object(schema: JSON, root: JSON) -> Shape:
    parts = {name: shape_of(prop, root) for name, prop in schema.get("properties", {}).items()}
    return Shape(
        spaces.Dict({name: part.space for name, part in parts.items()}),
        lambda sample: {name: part.to_plain(sample[name]) for name, part in parts.items()},
        lambda plain: {name: part.to_sample(plain[name]) for name, part in parts.items()},
    )


_KINDS: dict[str, Callable[[JSON, JSON], Shape]] = {
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "string": _string,
    "array": _array,
    "object": _object,
}
# What every observation has beside its own fields is told elsewhere.
_BESIDE = ("reward", "done", "terminated", "truncated", "metadata")


def shapes(about: JSON) -> tuple[Shape, Shape]:
    """Of an environment's action and observation."""
    if about["reset"] is None or not about["steps"]:
        raise ConfigError(f"{about['name']} has no episodes: Gymnasium needs reset and step")
    seen = dict(about["observation"])
    if set(_BESIDE) <= seen.get("properties", {}).keys():
        seen["properties"] = {k: v for k, v in seen["properties"].items() if k not in _BESIDE}
    return shape_of(about["action"]), shape_of(seen, about["observation"])


def _takes_seed(about: JSON) -> bool:
    reset = about["reset"]
    return "seed" in reset["properties"] or bool(reset.get("additionalProperties"))


class RayfineEnv(gymnasium.Env[Any, Any]):
    """An environment with Gymnasium's five values.

    Args:
        env: What `load_env` takes, or a handle that it returned; a handle stays open at close().
        **options: For `load_env`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own name for it

    def __init__(
        self,
        env: "EnvironmentWrapper[Any, Any, Any] | Target",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.render_mode = render_mode
        self._owns = not isinstance(env, EnvironmentWrapper)
        self._env = env if isinstance(env, EnvironmentWrapper) else load_env(env, **options)
        about = self._env.describe()
        self._action, self._seen = shapes(about)
        self._seeded = _takes_seed(about)
        self.usage: JSON = {}
        """What the last call took; not in `info`, which must be the same each time."""
        self.action_space, self.observation_space = self._action.space, self._seen.space

    def reset(
        self, *, seed: int | None = None, options: JSON | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        # Who gives none after one did gets the episode that follows from it.
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        result = self._env.reset(drawn if self._seeded else None, **(options or {}))
        self.usage = result.info.pop("usage", {})
        return self._seen.to_sample(result.observation), result.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = self._env.step(self._action.to_plain(action))
        seen = self._seen.to_sample(result.observation)
        self.usage = result.info.pop("usage", {})
        return seen, float(result.reward or 0.0), result.terminated, result.truncated, result.info

    def close(self) -> None:
        if self._owns:
            self._env.cleanup()


class RayfineVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Many sessions of one environment, stepped together; each begins anew after its end."""

    def __init__(self, env: Target, num_envs: int, **options: Any) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._env = load_env(env, **options)
        about = self._env.describe()
        self._action, self._seen = shapes(about)
        self._seeded = _takes_seed(about)
        self.single_action_space, self.single_observation_space = (
            self._action.space,
            self._seen.space,
        )
        self.action_space = batch_space(self._action.space, num_envs)
        self.observation_space = batch_space(self._seen.space, num_envs)
        self._sessions = [async_session(self._env) for _ in range(num_envs)]
        self._over = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: JSON | None = None
    ) -> tuple[Any, dict[str, Any]]:
        first = seed if isinstance(seed, int) else None
        super().reset(seed=first)
        seeds = seed if isinstance(seed, list) else self._seeds(first)
        results = background.run(self._all(_reset, [(each, options or {}) for each in seeds]))
        self._over[:] = False
        return self._batch([result.observation for result in results]), {}

    def _seeds(self, first: int | None) -> list[int | None]:
        if first is None:
            first = int(self.np_random.integers(2**31 - self.num_envs))
        return [first + n for n in range(self.num_envs)]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        moves = gymnasium.vector.utils.iterate(self.action_space, actions)
        given = [
            None if over else self._action.to_plain(move)
            for over, move in zip(self._over, moves, strict=True)
        ]
        fresh = self._seeds(None) if self._over.any() else [None] * self.num_envs
        pairs = [(move, seed if self._seeded else None) for move, seed in
                 zip(given, fresh, strict=True)]  # fmt: skip
        results = background.run(self._all(_step, pairs))
        rewards = np.array([result.reward or 0.0 for result in results], dtype=np.float64)
        terminated = np.array([result.terminated for result in results])
        truncated = np.array([result.truncated for result in results])
        self._over = terminated | truncated
        seen = self._batch([result.observation for result in results])
        return seen, rewards, terminated, truncated, {}

    async def _all(self, ask: Callable[..., Any], given: list[tuple[Any, ...]]) -> list[Any]:
        """Every session at once: their journeys overlap."""
        asked = (ask(each, *args) for each, args in zip(self._sessions, given, strict=True))
        return list(await asyncio.gather(*asked))

    def _batch(self, observations: list[Any]) -> Any:
        samples = [self._seen.to_sample(each) for each in observations]
        space = self.single_observation_space
        room: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, samples, room)

    def close_extras(self, **kwargs: Any) -> None:
        self._env.cleanup()


async def _reset(session: "Session[Any, Any, Any]", seed: int | None, options: JSON) -> Any:
    return await session.reset(seed, **options)


async def _step(session: "Session[Any, Any, Any]", move: Any, seed: int | None) -> Any:
    """One step; where the last one ended the episode, a reset in its place."""
    return await (session.reset(seed) if move is None else session.step(move))
