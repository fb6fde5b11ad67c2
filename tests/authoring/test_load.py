"""The loader: every form and every kind of target becomes one shape, or a typed error."""

import asyncio
import inspect
import os
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.authoring import Environment
from rayfine_env.authoring.load import Loaded, load, load_again, project_of
from rayfine_env.errors import ActionError, ConfigError, LoadError


@pytest.fixture(autouse=True)
def imports() -> Iterator[None]:
    """What a test imports is gone after it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        del sys.modules[name]


def write(directory: Path, **files: str) -> Path:
    """Write `a__b="..."` to `a/b.py`."""
    for name, text in files.items():
        path = name.replace("__init", "/.init").replace("__", "/").replace(".init", "__init__")
        file = directory / f"{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    return directory


def call(loaded: Loaded, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method as a server would."""
    method = loaded.contract.method(name)
    bound, named = method.signature.bind(list(args), kwargs)
    value = getattr(loaded.contract.env(), method.attribute)(*bound, **named)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def names(loaded: Loaded) -> list[str]:
    return sorted(loaded.contract.methods)


FUNCTIONS = """
    'Adds.'
    async def add(a: int, b: int = 1) -> int:
        return a + b
"""
ACTOR = """
    class Actor:
        'Adds.'
        async def add(self, a: int, b: int = 1) -> int:
            return a + b
"""
ENVIRONMENT = """
    from rayfine_env import Action, Environment, Observation, State

    class Adder(Environment[Action, Observation, State]):
        'Adds.'
        async def add(self, a: int, b: int = 1) -> int:
            return a + b
"""


@pytest.mark.parametrize("form", [FUNCTIONS, ACTOR, ENVIRONMENT])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_three_forms_become_one_shape(tmp_path: Path, form: str, asynchronous: bool) -> None:
    text = form if asynchronous else form.replace("async ", "")
    loaded = load(write(tmp_path, env=text))
    assert issubclass(loaded.contract.env, Environment)
    assert names(loaded) == ["add"]
    assert call(loaded, "add", "1", b=2) == 3
    document = loaded.contract.document
    assert (document["description"], document["steps"]) == ("Adds.", False)
    assert document["methods"][0]["input"]["required"] == ["a"]


GYM = """
    from typing import Any
    def reset(seed=None, **options): return seed
    def step(action: int) -> int: return action
    def state() -> dict: return {}
    def close(): pass
"""
GYM_ACTOR = """
    class Actor:
        def reset(self, seed=None, **options): return seed
        def step(self, action: int): return action
        @property
        def state(self) -> dict: return {"from": "actor"}
"""


@pytest.mark.parametrize("text", [GYM, GYM_ACTOR])
def test_every_form_may_have_the_gyms_names(tmp_path: Path, text: str) -> None:
    contract = load(write(tmp_path, env=text)).contract
    assert contract.steps
    assert contract.reset is not None
    assert contract.reset.open
    assert contract.action.kind is int
    assert contract.state.kind is dict
    assert contract.methods == {}
    env: Any = contract.env()
    assert env.reset(seed=3) == 3
    assert env.step(4) == 4
    assert env.state == {"from": "actor"} or env.state() == {}


def test_an_actor_and_functions_beside_it(tmp_path: Path) -> None:
    text = """
        from os import getcwd
        from dataclasses import dataclass
        from typing import Dict
        import functools, json
        from rayfine_env import tool
        from beside import helper, Imported, constant

        class Base:
            def inherited(self): return "base"
            def clash(self): return "base"

        class Actor(Base):
            limit = 3
            def __init__(self): self.made = True
            def clash(self): return "actor"
            @staticmethod
            def static(x: int): return x
            @classmethod
            def of_class(cls, x: int): return cls.limit + x
            @tool
            @classmethod
            def marked(cls): return "marked"
            @property
            def prop(self): raise RuntimeError
            def _private(self): ...

        def clash(): return "function"
        def beside_it(x: int = 1): return x
        @functools.cache
        def cached(x: int): return x
        double = lambda x: 2 * x
        def _hidden(): ...
    """
    beside = """
        def helper(): ...
        class Imported:
            def run(self): ...
        constant = 3
    """
    loaded = load(write(tmp_path, env=text, beside=beside))
    assert names(loaded) == [
        *("beside_it", "cached", "clash", "double"),
        *("inherited", "marked", "of_class", "static"),
    ]
    assert call(loaded, "clash") == "actor"
    assert call(loaded, "inherited") == "base"
    assert call(loaded, "beside_it", "5") == 5
    assert call(loaded, "cached", x="5") == 5
    assert call(loaded, "double", 4) == 8
    assert call(loaded, "static", "2") == 2
    assert call(loaded, "of_class", "2") == 5
    assert call(loaded, "marked") == "marked"
    assert loaded.contract.methods["marked"].kind == "tool"


def test_an_actor_is_made_with_the_environment_and_not_before(tmp_path: Path) -> None:
    text = """
        class Actor:
            def __init__(self): raise RuntimeError("made")
            def act(self): ...
    """
    loaded = load(write(tmp_path, env=text))
    with pytest.raises(RuntimeError, match="made"):
        loaded.contract.env()


def test_marked_functions_beside_an_environment_are_its_tools(tmp_path: Path) -> None:
    text = (
        ENVIRONMENT
        + """
    from rayfine_env import tool
    @tool
    def look() -> str: return "seen"
    @tool
    def add(): "loses the clash"
    def helper(): ...
    """
    )
    loaded = load(write(tmp_path, env=text))
    assert names(loaded) == ["add", "look"]
    assert call(loaded, "look") == "seen"
    assert call(loaded, "add", 1) == 2


def test_a_base_in_a_sibling_file_is_the_authors_too(tmp_path: Path) -> None:
    base = """
        from __future__ import annotations
        from shapes import Move
        class Base:
            def go(self, move: Move) -> Move: return move
    """
    shapes = """
        from __future__ import annotations
        from rayfine_env import Action
        class Step(Action):
            by: int
        class Move(Action):
            steps: list[Step]
    """
    env = """
        import threading
        from base import Base
        class Actor(Base, threading.Thread): ...
    """
    loaded = load(write(tmp_path, env=env, base=base, shapes=shapes))
    assert names(loaded) == ["go"]
    assert call(loaded, "go", {"steps": [{"by": "2"}]}).steps[0].by == 2


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write(tmp_path / "place", env=FUNCTIONS, other=ACTOR, mod_forms=ENVIRONMENT)


@pytest.mark.parametrize(
    "target",
    [
        *(".", "./", "env.py", "./env.py", "other.py", "other.py:Actor", "mod_forms.py:Adder"),
        *("env", "mod_forms", "mod_forms:Adder", "../place", "../place/", "../link", "../a:b"),
    ],
)
def test_targets_of_every_kind(project: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.parent / "link").symlink_to(project)
    (project.parent / "a:b").symlink_to(project)
    monkeypatch.chdir(project)
    loaded = load(target)
    assert names(loaded) == ["add"]
    assert loaded.target == target
    assert load(Path(target)).contract.name == loaded.contract.name


def test_absolute_paths_and_the_home_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.parent))
    assert names(load(project)) == names(load(str(project / "env.py"))) == ["add"]
    assert names(load("~/place")) == ["add"]


class Given(Environment[Any, Any, Any]):
    class Inner:
        def act(self) -> int:
            return 1

    def act(self) -> int:
        return 1


def helper_of_this_module() -> None: ...


@pytest.mark.parametrize("cls", [Given, Given.Inner])
def test_a_class_is_itself_without_the_functions_beside_it(cls: type[Any]) -> None:
    assert names(load(cls)) == ["act"]
    assert names(load(f"{__file__}:{cls.__qualname__}")) == ["act"]
    assert load(cls).contract.name == cls.__name__


def test_a_bundled_environment_goes_by_its_name() -> None:
    loaded = load("echo")
    assert loaded.contract.steps
    assert loaded.contract.env.__module__ == "rayfine_env.envs.echo.env"
    assert project_of("echo").name == loaded.contract.name


def test_relative_imports_work_inside_a_package(tmp_path: Path) -> None:
    models = "from rayfine_env import Action\nclass Move(Action):\n    by: int\n"
    server = """
        from __future__ import annotations
        from ..models import Move
        from . import tables
        import sibling
        def go(move: Move) -> int: return move.by * tables.FACTOR * sibling.ONE
    """
    root = write(
        tmp_path,
        my_env__init="",
        my_env__models=models,
        my_env__server__init="",
        my_env__server__tables="FACTOR = 2",
        my_env__server__sibling="ONE = 1",
        my_env__server__environment=server,
    )
    loaded = load(root / "my_env/server/environment.py")
    assert loaded.contract.env.__module__ == "my_env.server.environment"
    assert call(loaded, "go", {"by": 3}) == 6
    with pytest.raises(LoadError, match=r"has no env\.py"):
        load(root / "my_env/server")


def test_packages_of_one_name_in_two_places(tmp_path: Path) -> None:
    for place in ("one", "two"):
        write(
            tmp_path / place,
            pkg__init="",
            pkg__env="""
                from .which import WHICH
                from pkg import which
                def tell(): return WHICH, which.WHICH
            """,
            pkg__which=f"WHICH = {place!r}",
        )
    for place in ("one", "two", "one"):
        assert call(load(tmp_path / place / "pkg"), "tell") == (place, place)


def test_siblings_of_one_name_in_two_places(tmp_path: Path) -> None:
    for place in ("one", "two"):
        write(
            tmp_path / place,
            env="""
                import helper, parts.piece, namespace.piece
                def tell(): return helper.WHICH, parts.piece.WHICH, namespace.piece.WHICH
                def tell_later():
                    import helper, parts.piece, namespace.piece
                    return helper.WHICH, parts.piece.WHICH, namespace.piece.WHICH
                def tell_latest():
                    import latest
                    return latest.WHICH
            """,
            helper=f"WHICH = {place!r}",
            latest=f"WHICH = {place!r}",
            parts__init="",
            parts__piece=f"WHICH = {place!r}",
            namespace__piece=f"WHICH = {place!r}",
        )
    first = load(tmp_path / "one")
    for place in ("two", "one", "two"):
        loaded = load(tmp_path / place)
        assert call(loaded, "tell") == (place, place, place)
        assert call(loaded, "tell_later") == (place, place, place)
        assert call(loaded, "tell_latest") == place
    assert call(first, "tell") == ("one", "one", "one")


@pytest.mark.parametrize(
    "name", ["with space", "ümläut-環境", "dotted.v1.0", "-dash", "class", "quo'te"]
)
def test_odd_directories(tmp_path: Path, name: str) -> None:
    place = write(tmp_path / name, env="import beside\n" + textwrap.dedent(FUNCTIONS), beside="")
    assert names(load(place)) == ["add"]
    assert names(load(f"{place}/")) == ["add"]
    assert names(load(f"{place}/env.py")) == ["add"]


def test_the_project_file_names_another_entry(tmp_path: Path) -> None:
    write(tmp_path, src__main=ENVIRONMENT + ENVIRONMENT.replace("Adder", "Other"))
    (tmp_path / "pyproject.toml").write_text('[tool.rayfine]\nentry = "src/main.py:Other"\n')
    assert load(tmp_path).contract.env.__name__ == "Other"


def test_variables_are_there_before_the_code_and_gone_after_a_failure(tmp_path: Path) -> None:
    write(
        tmp_path,
        env="import os\nVALUE = os.environ['RF_A'], os.environ['RF_B']\ndef tell(): return VALUE",
    )
    (tmp_path / "pyproject.toml").write_text(
        '[tool.rayfine.deploy_config.environment_variables]\nRF_A = "file"\nRF_B = "file"\n'
    )
    loaded = load(tmp_path, {"RF_B": "given"})
    assert call(loaded, "tell") == ("file", "given")
    again = load_again(loaded, {"RF_A": "more"})
    assert call(again, "tell") == ("more", "given")
    again.variables.restore()
    loaded.variables.restore()
    (tmp_path / "env.py").write_text("raise ValueError")
    with pytest.raises(LoadError):
        load(tmp_path, {"RF_B": "given"})
    assert not {"RF_A", "RF_B"} & os.environ.keys()


def test_loading_again_imports_the_authors_modules_anew_and_no_others(tmp_path: Path) -> None:
    write(
        tmp_path,
        env="import helper, installed\ndef tell(): return helper.VALUE",
        helper="import os\nVALUE = os.environ.get('RF_C')",
        venv__lib__installed="",
    )
    sys.path.insert(0, str(tmp_path / "venv/lib"))
    loaded = load(tmp_path)
    installed = sys.modules["installed"]
    again = load_again(loaded, {"RF_C": "set"})
    again.variables.restore()
    assert (call(loaded, "tell"), call(again, "tell")) == (None, "set")
    assert sys.modules["installed"] is installed


def test_loading_a_bundled_environment_again_keeps_the_house() -> None:
    loaded = load("echo")
    house = sys.modules["rayfine_env.errors"]
    again = load_again(loaded, {"RF_D": "x"})
    again.variables.restore()
    assert again.contract.env is not loaded.contract.env
    assert sys.modules["rayfine_env.errors"] is house
    assert issubclass(again.contract.env, Environment)


def test_a_class_loaded_again_is_the_same_with_its_own_variables() -> None:
    loaded = load(Given)
    again = load_again(loaded, {"RF_E": "x"})
    assert again.contract is loaded.contract
    assert os.environ["RF_E"] == "x"
    again.variables.restore()
    assert "RF_E" not in os.environ


@pytest.mark.parametrize("bad", [{"": "x"}, {"A=B": "x"}, {"RF_H": "\0"}, {"RF_H": 1}])
def test_what_is_no_variable_leaves_the_others_alone(bad: Any) -> None:
    with pytest.raises(ActionError) as caught:
        load(Given, {"RF_G": "x", **bad})
    assert caught.value.detail["field"] in bad
    assert "RF_G" not in os.environ


def refusal(target: Any) -> str:
    with pytest.raises(LoadError) as caught:
        load(target)
    return caught.value.message


def test_no_such_target(tmp_path: Path) -> None:
    assert "has no env.py" in refusal(tmp_path)
    assert "does not exist" in refusal(tmp_path / "nowhere")
    assert "does not exist" in refusal("nowhere.py")
    assert "bundled environment; did you mean 'echo'" in refusal("ecco")
    assert "neither a file nor" in refusal("no_such.module:Class")
    assert "neither a file nor" in refusal("json.no_such")
    assert "neither a file nor" in refusal("x" * 5000)
    for odd in ("", ":", ".x", "a..b", "\0", "\0.py", "/\0", "~no_such_user/x"):
        assert refusal(odd)
    (tmp_path / "notes.txt").write_text("no code")
    assert "not a Python file" in refusal(tmp_path / "notes.txt")
    (tmp_path / "env.py").mkdir()
    assert "has no env.py" in refusal(tmp_path)


def test_no_such_class(tmp_path: Path) -> None:
    write(tmp_path, env=ACTOR + "    value = 3\n")
    assert "has no class 'Aktor'; did you mean 'Actor'" in refusal(f"{tmp_path}/env.py:Aktor")
    assert "has no class 'value'" in refusal(f"{tmp_path}:value")
    assert "has no class 'Actor.add'" in refusal(f"{tmp_path}:Actor.add")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "defines no environment"),
        ("import os\nfrom json import dumps\n_x = 1\ndef _f(): ...", "defines no environment"),
        ("class Actor: ...", "Actor has no public method"),
        ("class Actor:\n    def _f(self): ...", "Actor has no public method"),
        ("def f(x: Missing): ...", "NameError: name 'Missing' is not defined ({file}, line 1)"),
        ("def f(x: 'Missing'): ...", "annotation of f() cannot be resolved"),
        ("def step(): ...", "step takes ()"),
        ("\n\n1 / 0", "ZeroDivisionError: division by zero ({file}, line 3)"),
        ("\nimport sys\nsys.exit(3)", "SystemExit: 3 ({file}, line 3)"),
        ("def f(:", "SyntaxError: invalid syntax ({file}, line 1)"),
        ("x = '\0'", "null byte"),
        ("import no_such_module", "No module named 'no_such_module' ({file}, line 1)"),
        ("from . import x", "relative import"),
        (
            "def f():\n  import x\nclass E(Exception): ...\nraise E('own')",
            "raised E: own ({file}, line 4)",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "env.py"
    file.write_text(text)
    before = set(sys.modules)
    assert said.format(file=file) in refusal(tmp_path)
    left = [name for name in sys.modules.keys() - before if name.startswith("env_")]
    assert left == [] or "raised" not in refusal(tmp_path)


def test_a_broken_sibling_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, env="import beside\ndef f(): ...", beside="\n1 / 0")
    assert f"({tmp_path / 'beside.py'}, line 2)" in refusal(tmp_path)
    write(tmp_path, beside="\n\ndef (")
    assert f"({tmp_path / 'beside.py'}, line 3)" in refusal(tmp_path)
    write(tmp_path, beside="")
    assert names(load(tmp_path)) == ["f"]


def test_a_module_that_a_module_needs_is_not_mistaken_for_the_target(tmp_path: Path) -> None:
    write(tmp_path, needy="import not_there")
    sys.path.insert(0, str(tmp_path))
    assert "importing needy raised ModuleNotFoundError: No module named 'not_there'" in refusal(
        "needy"
    )


def test_an_interrupt_while_importing_is_not_swallowed(tmp_path: Path) -> None:
    write(tmp_path, env="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load(tmp_path, {"RF_F": "x"})
    assert "RF_F" not in os.environ


def test_two_environments_in_one_file(tmp_path: Path) -> None:
    write(tmp_path, env=ENVIRONMENT + ENVIRONMENT.replace("Adder", "Other"))
    assert "has Adder, Other: one file is one environment" in refusal(tmp_path)
    assert load(f"{tmp_path}:Other").contract.env.__name__ == "Other"
    write(tmp_path, env=ENVIRONMENT + ACTOR)
    assert "has Adder, Actor" in refusal(tmp_path)


def test_bases_aliases_and_private_classes_are_no_second_environment(tmp_path: Path) -> None:
    more = """
    class Derived(Adder): ...
    Alias = Derived
    class _Private(Environment): ...
    """
    write(tmp_path, env=ENVIRONMENT + more)
    assert load(tmp_path).contract.env.__name__ == "Derived"


def test_output_at_import_is_the_authors_business(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, env="print('hello')\ndef f(): ...")
    assert names(load(tmp_path)) == ["f"]
    assert capsys.readouterr().out == "hello\n"


def test_a_package_beside_us_is_a_module_unless_it_is_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, rf_pkg__init=ACTOR, rf_env__init="", rf_env__env=FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    assert load("rf_pkg:Actor").contract.env.__name__ == "Actor"
    assert load("rf_pkg").contract.env.__module__ == "rf_pkg"
    assert load("rf_env").contract.env.__module__ == "rf_env.env"
    assert load("rf_env.env").contract.env.__module__ == "rf_env.env"


def test_a_broken_project_file_is_a_config_error(tmp_path: Path) -> None:
    write(tmp_path, env=FUNCTIONS)
    (tmp_path / "pyproject.toml").write_text("[tool.rayfine]\nmax_stepz = 1\n")
    with pytest.raises(ConfigError, match="max_stepz"):
        load(tmp_path)


def test_an_environment_may_load_another_and_threads_may_load_at_once(tmp_path: Path) -> None:
    inner = write(tmp_path / "inner", env=FUNCTIONS)
    outer = f"""
        from rayfine_env.authoring.load import load
        INNER = load({str(inner)!r})
        def inner_methods(): return list(INNER.contract.methods)
    """
    write(tmp_path / "outer", env=outer)
    found: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(call(load(tmp_path / "outer"), "inner_methods"))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["add"] * 4
