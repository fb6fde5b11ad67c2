"""The sync and the async surface are the same: names, signatures, and what they return."""

import inspect
from typing import Any, get_type_hints

import pytest

from rayfine_env import AsyncEnvironmentWrapper, EnvironmentWrapper, Session, SyncSession
from rayfine_env.client.transport import (
    AsyncInProcess,
    AsyncSocket,
    AsyncTransport,
    InProcess,
    Socket,
    Transport,
)

PAIRS = [(SyncSession, Session), (EnvironmentWrapper, AsyncEnvironmentWrapper)]


def surface(cls: type[Any]) -> dict[str, Any]:
    """Every public name of a class, with the parameters and the result of each method."""
    found = {}
    for name, value in inspect.getmembers(cls):
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            found[name] = _parameters(value.fget)
        elif callable(value):
            found[name] = _parameters(value)
    return found


def _parameters(fn: Any) -> tuple[str, str]:
    signature = inspect.signature(fn)
    parameters = [str(p) for p in signature.parameters.values() if p.name != "self"]
    return ", ".join(parameters), str(get_type_hints(fn)["return"])


def as_sync(shown: dict[str, Any]) -> dict[str, Any]:
    """An async surface as its sync twin would be written."""
    twins = {sync.__name__: other.__name__ for sync, other in PAIRS}

    def renamed(text: str) -> str:
        for sync, other in twins.items():
            text = text.replace(f".{other}[", f".{sync}[")
        return text.replace("client.session.", "client.sync.")

    return {name: tuple(map(renamed, parts)) for name, parts in shown.items()}


@pytest.mark.parametrize(("sync", "other"), PAIRS)
def test_both_surfaces_have_the_same_signatures(sync: type[Any], other: type[Any]) -> None:
    assert surface(sync) == as_sync(surface(other))


@pytest.mark.parametrize(("sync", "other"), PAIRS)
def test_what_is_awaited_on_one_side_is_called_on_the_other(
    sync: type[Any], other: type[Any]
) -> None:
    for name in surface(sync):
        is_async = inspect.iscoroutinefunction(getattr(other, name))
        assert not inspect.iscoroutinefunction(getattr(sync, name)), name
        # What only makes a handle touches no network.
        assert is_async == (name not in ("id", "env_id", "instance", "session", "sessions")), name


def test_every_transport_has_the_shape_of_its_protocol() -> None:
    for kind, kinds in (
        (Transport, (Socket, InProcess)),
        (AsyncTransport, (AsyncSocket, AsyncInProcess)),
    ):
        for cls in kinds:
            for name in ("ask", "close", "another"):
                wanted, found = getattr(kind, name), getattr(cls, name)
                assert list(inspect.signature(wanted).parameters) == list(
                    inspect.signature(found).parameters
                )
                assert inspect.iscoroutinefunction(wanted) == inspect.iscoroutinefunction(found)
