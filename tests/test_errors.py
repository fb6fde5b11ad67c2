"""The error tree: codes that cross the wire, and the one boundary that names foreign exceptions."""

import builtins
import copy
import pickle  # noqa: TID251 - a trainer's own worker pool may pickle an error to itself
import sys
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import errors
from rayfine_env.authoring.load import load
from rayfine_env.errors import (
    BY_CODE,
    EnvError,
    InfraError,
    LoadError,
    RayfineError,
    RemoteError,
    ResourceLimit,
    Timeout,
    boundary,
    from_code,
)
from rayfine_env.wire import Reply, decode_json, decode_reply, encode, error_json

CLASSES = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, RayfineError)
]
every_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def test_every_class_has_a_code_of_its_own_and_a_place_in_the_tree() -> None:
    assert sorted(cls.code for cls in CLASSES) == sorted(BY_CODE)
    drawn = errors.__doc__ or ""
    assert [
        cls.__name__
        for cls in CLASSES
        if f" {cls.__name__} " not in f" {drawn} ".replace("\n", " ")
    ] == []


@every_class
def test_an_error_comes_back_as_it_was(cls: type[RayfineError]) -> None:
    sent = cls("why", field="x", message="in the way", self=1, detail={"a": [1]})
    for got in (
        _over_msgpack(sent),
        _over_json(sent),
        copy.copy(sent),
        pickle.loads(pickle.dumps(sent)),
    ):
        assert type(got) is cls
        assert (got.code, got.message, str(got), got.detail) == (
            cls.code,
            "why",
            "why",
            sent.detail,
        )
        assert got.status == sent.status


def _over_msgpack(exc: RayfineError) -> RayfineError:
    with pytest.raises(RayfineError) as caught:
        decode_reply(encode(Reply.from_error(1, exc))).unwrap()
    return caught.value


def _over_json(exc: RayfineError) -> RayfineError:
    error = decode_json(error_json(exc))["error"]
    return from_code(error["code"], error["message"], error["detail"])


@every_class
def test_every_status_is_an_http_error(cls: type[RayfineError]) -> None:
    assert 400 <= cls("why").status < 600


def test_an_unknown_code_is_a_remote_error_that_names_it() -> None:
    exc = from_code("of tomorrow", "why", {"field": "x"})
    assert type(exc) is RemoteError
    assert "why" in exc.message
    assert "'of tomorrow'" in exc.message
    assert exc.detail == {"field": "x"}


def test_a_timeout_is_the_builtin_one_too() -> None:
    assert issubclass(Timeout, builtins.TimeoutError)
    assert str(Timeout("late", limit=1)) == "late"


def test_the_properties_read_the_detail() -> None:
    assert InfraError("x").retryable
    assert not InfraError("x", retryable=False).retryable
    assert InfraError("x", phase="start").phase == "start"
    assert errors.CapacityError("x", retry_after=2).retry_after == 2.0
    assert errors.AuthError("x", status=403).status == 403
    assert errors.ProtocolError("x", status=413).status == 413
    assert "pip install 'rayfine-env[numpy]'" in errors.MissingExtra.named("It", "numpy").message


def crossed(exc: BaseException, error: type[RayfineError] = EnvError) -> RayfineError:
    with pytest.raises(RayfineError) as caught, boundary(error, "Env.step"):
        raise exc
    return caught.value


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("exc", "said"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError("two\nlines"), "ValueError: two\nlines"),
        (KeyError("k"), "KeyError: 'k'"),
        (AssertionError(), "AssertionError"),
        (SystemExit(3), "SystemExit: 3"),
        (Unprintable(), "Unprintable: <exception str() failed>"),
        (
            ExceptionGroup("both", [ValueError("a"), KeyError("b")]),
            "ExceptionGroup: both (2 sub-exceptions)",
        ),
    ],
)
def test_foreign_exceptions_are_named_by_the_boundary(exc: BaseException, said: str) -> None:
    error = crossed(exc)
    assert type(error) is EnvError
    assert error.message == f"Env.step raised {said}"
    assert error.__cause__ is exc


def test_our_own_errors_pass_through_as_they_are() -> None:
    own = errors.ActionError("illegal move")
    assert crossed(own) is own


def test_lack_of_memory_is_a_resource_limit() -> None:
    for error in (EnvError, LoadError):
        assert type(crossed(MemoryError(), error)) is ResourceLimit


@pytest.mark.parametrize("exc", [KeyboardInterrupt(), GeneratorExit()])
def test_what_is_meant_for_the_host_is_not_caught(exc: BaseException) -> None:
    with pytest.raises(type(exc)), boundary(EnvError, "Env.step"):
        raise exc


def test_one_boundary_may_be_crossed_again_and_again() -> None:
    step = boundary(EnvError, "Env.step")
    for _ in range(2):
        with pytest.raises(EnvError, match="ZeroDivisionError"), step:
            _ = 1 / 0
        with step:
            pass


ENV = """
def outer():
    try:
        inner()
    except KeyError as exc:
        raise ValueError("outer") from exc

def inner():
    raise KeyError("inner")

def group():
    raise ExceptionGroup("both", [ValueError("a")])
"""


def method(tmp_path: Path, name: str) -> Any:
    (tmp_path / "env.py").write_text(ENV)
    return getattr(load(tmp_path).contract.env(), name)


def test_a_traceback_keeps_the_authors_frames_and_causes_and_drops_ours(tmp_path: Path) -> None:
    outer = method(tmp_path, "outer")
    with pytest.raises(EnvError) as caught, boundary(EnvError, "Env.outer"):
        outer()
    told = caught.value.traceback
    assert told.index("KeyError: 'inner'") < told.index("ValueError: outer")
    assert told.count("direct cause") == 1
    assert f'{tmp_path / "env.py"}", line 6, in outer' in told
    assert "line 9, in inner" in told
    assert errors.__file__ not in told
    with pytest.raises(EnvError) as caught, boundary(EnvError, "Env.group"):
        method(tmp_path, "group")()
    assert "ValueError: a" in caught.value.traceback


def test_frames_of_bundled_environments_are_an_authors(tmp_path: Path) -> None:
    env: Any = load("echo").contract.env()
    with pytest.raises(EnvError) as caught, boundary(EnvError, "Echo.step"):
        env.step(None)
    assert "envs/echo/env.py" in caught.value.traceback


def test_only_a_load_error_tells_the_line_in_its_message() -> None:
    line = sys._getframe().f_lineno + 2
    with pytest.raises(LoadError) as caught, boundary(LoadError, "importing"):
        raise ValueError("bad")
    assert caught.value.message == f"importing raised ValueError: bad ({__file__}, line {line})"
    assert __file__ not in crossed(ValueError("bad")).message
