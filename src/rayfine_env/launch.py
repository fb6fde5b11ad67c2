"""load_env: from a path, a class or a URL to a handle that behaves the same everywhere."""

import atexit
import contextlib
import os
import secrets
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, cast, get_args, get_origin, overload

from .authoring.contract import near, types_of
from .authoring.environment import ActT, Environment, StateT
from .authoring.load import Target
from .authoring.models import ObsT
from .client import background
from .client.address import Address
from .client.description import Description
from .client.protocol import Protocol
from .client.session import Session
from .client.sync import SyncSession
from .client.transport import AsyncSocket, AsyncTransport, Socket
from .errors import JSON, ConfigError, InfraError, NotFound, SessionLost, Timeout
from .fleet.pool import any_pools, close_pools, pool_of
from .fleet.replicas import Replicas
from .images.names import is_image
from .providers.base import Instance, Provider, Spec, Watched, provider
from .wire import Reply, Request

_active: dict[
    str, "EnvironmentWrapper[Any, Any, Any] | AsyncEnvironmentWrapper[Any, Any, Any]"
] = {}
_MANY = ("pool", "replicas")
_STARTS = ("reset", "setup")
_ENDS = ("session_lost", "timeout", "cancelled", "infra", "resource")


@dataclass(frozen=True)
class Launch:
    """What load_env was asked for, checked before anything is started."""

    id: str
    provider: Provider
    spec: Spec
    types: tuple[Any, Any, Any]
    timeout: float | None

    async def start(self) -> Instance:
        return await self.provider.start(self.id, self.spec)


def plan(
    target: Target,
    mode: str,
    env_vars: dict[str, str] | None,
    timeout: float | None,
    options: JSON,
) -> Launch:
    """Choose the provider and refuse what it does not know."""
    name = _provider_name(target, mode)
    chosen = provider(name)
    many = {key: options.pop(key) for key in _MANY if key in options and name == "docker"}
    unknown = options.keys() - chosen.options
    if unknown:
        known = ", ".join(sorted(chosen.options)) or "none"
        raise ConfigError(
            f"mode {name!r} does not know {sorted(unknown)[0]!r}; its options: {known}"
        )
    if env_vars and name == "url":
        raise ConfigError("env_vars are for an environment that is started here; use setup()")
    types: tuple[Any, Any, Any] = (Any, Any, Any)
    if isinstance(target, type) and issubclass(target, Environment):
        types = types_of(target)
    label = target.__name__ if isinstance(target, type) else Path(str(target).rstrip("/")).name
    id = f"{_slug(label)}-{secrets.token_hex(4)}"
    spec = Spec(target, env_vars or {}, options)
    return Launch(id, _several(chosen, spec, **many), spec, types, timeout)


def _several(chosen: Provider, spec: Spec, pool: Any = None, replicas: Any = None) -> Provider:
    """The provider itself, or what makes many of its instances look like one."""
    for name, count in (("pool", pool), ("replicas", replicas)):
        if count is not None and (not isinstance(count, int) or count < 1):
            raise ConfigError(f"{name} is a number of containers above 0, not {count!r}")
    if pool and replicas:
        raise ConfigError("pool and replicas exclude each other: one is used up, the other kept")
    if pool and ("container_name" in spec.options or "port" in spec.options):
        raise ConfigError("a pool has many containers: leave out container_name and port")
    if pool:
        return pool_of(cast(Watched, chosen), spec, pool)
    return Replicas(cast(Watched, chosen), replicas) if replicas else chosen


def _slug(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label.lower()).strip("-")[:20] or "env"


def _provider_name(target: Target, mode: str) -> str:
    text = target if isinstance(target, str) else ""
    if text.startswith(("http://", "https://", "unix:")):
        if mode != "local":
            raise ConfigError(f"{text} is a running server: leave out mode={mode!r}")
        return "url"
    if mode == "local":
        return "docker" if is_image(text) else "process"
    return mode


class _Renewal:
    """A handle's default session, and when a lost one may be replaced: by a reset or a setup."""

    def __init__(self) -> None:
        self.lost = False
        self.variables: dict[str, str] = {}

    def due(self, request: Request) -> bool:
        return self.lost and request.op in _STARTS

    def note(self, request: Request, reply: Reply) -> Reply:
        if reply.failure is not None and reply.failure.code in _ENDS:
            self.lost = True
            if reply.failure.code == SessionLost.code:
                reply.unwrap()
        elif request.op == "setup" and reply.failure is None:
            self.variables = dict(request.kwargs)
        return reply


class EnvironmentWrapper(SyncSession[ActT, ObsT, StateT]):
    """One instance and its default session. Any method of the environment is an attribute."""

    def __init__(self, launch: Launch, instance: Instance) -> None:
        self._launch = launch
        self._instance = instance
        self._renewal = _Renewal()
        transport = launch.provider.transport(instance, instance.session)
        asked = transport.ask(Protocol[Any, Any, Any]().request("describe"))
        super().__init__(transport, Description(asked.unwrap()), launch.types, launch.timeout)
        _active[launch.id] = self

    @property
    def env_id(self) -> str:
        """The name under which get_environment() finds this handle."""
        return self._launch.id

    @property
    def instance(self) -> Instance:
        return self._instance

    def session(self) -> SyncSession[ActT, ObsT, StateT]:
        """Another session of the same instance, independent of this one."""
        transport = self._launch.provider.transport(self._instance)
        return SyncSession(transport, self._description, self._launch.types, self._launch.timeout)

    def sessions(self, n: int) -> list[SyncSession[ActT, ObsT, StateT]]:
        return [self.session() for _ in range(n)]

    def _ask(self, request: Request) -> Reply:
        if not self._renewal.due(request):
            try:
                return self._renewal.note(request, super()._ask(request))
            except (InfraError, SessionLost, Timeout) as exc:
                self._renewal.lost = True
                if not isinstance(exc, SessionLost) or not self._renewal.due(request):
                    raise
        self._start_over(request)
        return self._renewal.note(request, super()._ask(request))

    def _start_over(self, request: Request) -> None:
        self._transport.close()
        self._transport = self._launch.provider.transport(self._instance)
        self._renewal.lost = False
        if request.op == "reset" and self._renewal.variables:
            self.setup(**self._renewal.variables)
            self._protocol.renumber(request)

    def cleanup(self) -> None:
        """Stop the instance and free everything; a second time is fine."""
        if _active.pop(self._launch.id, None) is None:
            return
        try:
            if not self._launch.provider.ends_sessions and not self._instance.session:
                with contextlib.suppress(InfraError, SessionLost):  # then it has ended already
                    super().close()
        finally:
            self._transport.close()
            background.run(self._launch.provider.stop(self._launch.id))

    def close(self) -> None:
        """The same as cleanup()."""
        self.cleanup()

    async def __aenter__(self) -> "AsyncEnvironmentWrapper[ActT, ObsT, StateT]":
        """`async with load_env(…) as env` gives the async handle on the same instance."""
        self._transport.close()
        session = self._transport.session
        return await AsyncEnvironmentWrapper._open(self._launch, self._instance, session)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        handle = _active.get(self._launch.id)
        if isinstance(handle, AsyncEnvironmentWrapper):
            await handle.cleanup()


class AsyncEnvironmentWrapper(Session[ActT, ObsT, StateT]):
    """EnvironmentWrapper for async code: the same calls, awaited."""

    def __init__(
        self, launch: Launch, instance: Instance, transport: AsyncTransport, about: Description
    ) -> None:
        self._launch = launch
        self._instance = instance
        self._renewal = _Renewal()
        super().__init__(transport, about, launch.types, launch.timeout)
        _active[launch.id] = self

    @classmethod
    async def _open(cls, launch: Launch, instance: Instance, session: str = "") -> Self:
        transport = launch.provider.async_transport(instance, session or instance.session)
        asked = await transport.ask(Protocol[Any, Any, Any]().request("describe"))
        return cls(launch, instance, transport, Description(asked.unwrap()))

    @property
    def env_id(self) -> str:
        """The name under which get_environment() finds this handle."""
        return self._launch.id

    @property
    def instance(self) -> Instance:
        return self._instance

    def session(self) -> Session[ActT, ObsT, StateT]:
        """Another session of the same instance, independent of this one."""
        transport = self._launch.provider.async_transport(self._instance)
        return Session(transport, self._description, self._launch.types, self._launch.timeout)

    def sessions(self, n: int) -> list[Session[ActT, ObsT, StateT]]:
        return [self.session() for _ in range(n)]

    async def _ask(self, request: Request) -> Reply:
        if not self._renewal.due(request):
            try:
                return self._renewal.note(request, await super()._ask(request))
            except (InfraError, SessionLost, Timeout) as exc:
                self._renewal.lost = True
                if not isinstance(exc, SessionLost) or not self._renewal.due(request):
                    raise
        await self._start_over(request)
        return self._renewal.note(request, await super()._ask(request))

    async def _start_over(self, request: Request) -> None:
        await self._transport.close()
        self._transport = self._launch.provider.async_transport(self._instance)
        self._renewal.lost = False
        if request.op == "reset" and self._renewal.variables:
            await self.setup(**self._renewal.variables)
            self._protocol.renumber(request)

    async def cleanup(self) -> None:
        """Stop the instance and free everything; a second time is fine."""
        if _active.pop(self._launch.id, None) is None:
            return
        try:
            if not self._launch.provider.ends_sessions and not self._instance.session:
                with contextlib.suppress(InfraError, SessionLost):
                    await super().close()
        finally:
            await self._transport.close()
            await self._launch.provider.stop(self._launch.id)

    async def close(self) -> None:
        """The same as cleanup()."""
        await self.cleanup()


@overload
def load_env(
    image: type[Environment[ActT, ObsT, StateT]],
    mode: str = "local",
    container_name: str | None = None,
    ray_port: int | None = None,
    *,
    env_vars: dict[str, str] | None = None,
    timeout: float | None = None,
    **options: Any,
) -> EnvironmentWrapper[ActT, ObsT, StateT]: ...
@overload
def load_env(
    image: Target,
    mode: str = "local",
    container_name: str | None = None,
    ray_port: int | None = None,
    *,
    env_vars: dict[str, str] | None = None,
    timeout: float | None = None,
    **options: Any,
) -> EnvironmentWrapper[Any, Any, Any]: ...
def load_env(
    image: Any,
    mode: str = "local",
    container_name: str | None = None,
    ray_port: int | None = None,
    *,
    env_vars: dict[str, str] | None = None,
    timeout: float | None = None,
    **options: Any,
) -> EnvironmentWrapper[Any, Any, Any]:
    """Start an environment, or connect to one, and return a handle on it.

    Args:
        image: A Docker image with its tag, a directory, a file, `package.module`,
            `module:Class`, the name of a bundled environment, a class, or the URL of a running
            server.
        mode: "local" (a container for an image, else a process; for a URL a connection, with
            `token` and `session` as its options), "docker", "process" or "inprocess".
        container_name: For containers; refused where there is none.
        ray_port: For Ray; refused where there is none.
        env_vars: Variables for the environment, in place before its code is imported.
        timeout: Seconds that any one call may take, unless it says otherwise itself.
        **options: What the mode knows; anything else is refused.
    """
    more = _given(container_name=container_name, ray_port=ray_port)
    launch = plan(image, mode, env_vars, timeout, {**options, **more})
    instance = background.run(launch.start())
    try:
        return EnvironmentWrapper(launch, instance)
    except BaseException:
        background.run(launch.provider.stop(launch.id))
        raise


class aload_env(Generic[ActT, ObsT, StateT]):
    """load_env for async code: `env = await aload_env(…)` or `async with aload_env(…) as env`."""

    @overload
    def __init__(
        self: "aload_env[ActT, ObsT, StateT]",
        image: type[Environment[ActT, ObsT, StateT]],
        mode: str = "local",
        container_name: str | None = None,
        ray_port: int | None = None,
        *,
        env_vars: dict[str, str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: "aload_env[Any, Any, Any]",
        image: Target,
        mode: str = "local",
        container_name: str | None = None,
        ray_port: int | None = None,
        *,
        env_vars: dict[str, str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None: ...
    def __init__(
        self,
        image: Any,
        mode: str = "local",
        container_name: str | None = None,
        ray_port: int | None = None,
        *,
        env_vars: dict[str, str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        more = _given(container_name=container_name, ray_port=ray_port)
        self._launch = plan(image, mode, env_vars, timeout, {**options, **more})
        self._env: AsyncEnvironmentWrapper[ActT, ObsT, StateT] | None = None

    def __await__(self) -> Generator[Any, None, AsyncEnvironmentWrapper[ActT, ObsT, StateT]]:
        return self._start().__await__()

    async def _start(self) -> AsyncEnvironmentWrapper[ActT, ObsT, StateT]:
        try:
            return await AsyncEnvironmentWrapper._open(self._launch, await self._launch.start())
        except BaseException:
            await self._launch.provider.stop(self._launch.id)
            raise

    async def __aenter__(self) -> AsyncEnvironmentWrapper[ActT, ObsT, StateT]:
        self._env = await self._start()
        return self._env

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._env is not None:
            await self._env.cleanup()


class EnvClient(EnvironmentWrapper[ActT, ObsT, StateT]):
    """A typed handle on a running server: `class MyEnv(EnvClient[MyAction, MyObs, MyState])`."""

    _declared: ClassVar[tuple[Any, Any, Any]] = (Any, Any, Any)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is EnvClient:
                cls._declared = get_args(base)

    def __init__(
        self, base_url: str, *, token: str | None = None, timeout: float | None = None
    ) -> None:
        options = _given(token=token)
        launch = replace(plan(base_url, "local", None, timeout, options), types=self._declared)
        super().__init__(launch, background.run(launch.start()))


def _given(**options: Any) -> JSON:
    return {name: value for name, value in options.items() if value is not None}


def attach(
    url: str, session_id: str, *, token: str | None = None, timeout: float | None = None
) -> SyncSession[Any, Any, Any]:
    """Take up a session that was detached, or whose client is gone, from any process."""
    transport = Socket(Address(url, token), session_id)
    about = transport.ask(Protocol[Any, Any, Any]().request("describe"))
    return SyncSession(transport, Description(about.unwrap()), timeout=timeout)


async def aattach(
    url: str, session_id: str, *, token: str | None = None, timeout: float | None = None
) -> Session[Any, Any, Any]:
    """attach() for async code."""
    transport = AsyncSocket(Address(url, token), session_id)
    about = await transport.ask(Protocol[Any, Any, Any]().request("describe"))
    return Session(transport, Description(about.unwrap()), timeout=timeout)


def async_session(
    env: EnvironmentWrapper[Any, Any, Any] | AsyncEnvironmentWrapper[Any, Any, Any],
) -> Session[Any, Any, Any]:
    """Another session of a handle's instance, for async code, whichever handle it is."""
    launch = env._launch
    transport = launch.provider.async_transport(env.instance)
    return Session(transport, env._description, launch.types, launch.timeout)


def list_active_environments() -> list[str]:
    """The ids of all environments this process has loaded and not cleaned up."""
    return list(_active)


def get_environment(
    env_id: str,
) -> EnvironmentWrapper[Any, Any, Any] | AsyncEnvironmentWrapper[Any, Any, Any]:
    """The handle of that id."""
    if env_id not in _active:
        raise NotFound(f"no active environment {env_id!r}{near(env_id, list(_active))}")
    return _active[env_id]


def cleanup_all_environments() -> None:
    """Clean up every environment of this process; also done at exit."""
    for handle in list(_active.values()):
        if isinstance(handle, EnvironmentWrapper):
            handle.cleanup()
        else:
            # An async handle's connection belongs to a loop that may be gone; its instance is ours.
            _active.pop(handle.env_id, None)
            background.run(handle._launch.provider.stop(handle.env_id))
    if any_pools():
        background.run(close_pools())


atexit.register(cleanup_all_environments)
# What a forked child inherits is still its parent's to clean up.
os.register_at_fork(after_in_child=_active.clear)
