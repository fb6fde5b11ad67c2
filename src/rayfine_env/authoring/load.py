"""One loader: a directory, file, `package.module`, `module:Class` or class -> one Environment."""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import LoadError, boundary
from .contract import Contract, public_functions
from .environment import Environment, mark_of
from .project import Project, read_project
from .variables import Variables

Target = str | Path | type[Any]
BUNDLED = Path(__file__).parent.parent / "envs"
_author_directories: set[Path] = set()


@dataclass(frozen=True)
class Loaded:
    """An environment ready to be made, with its contract and its project file."""

    contract: Contract
    project: Project
    variables: Variables = field(default_factory=Variables)
    target: Target = ""
    given: Mapping[str, str] = field(default_factory=dict)


def load(target: Target, given: Mapping[str, str] | None = None) -> Loaded:
    """Find, import and read the environment that `target` names.

    The project file's variables, then the given ones, are in place before author code runs.
    """
    variables = Variables()
    if isinstance(target, type):
        variables.put(given or {})
        contract = Contract(_from_class(target))
        return Loaded(contract, Project.named(target.__name__), variables, target)
    path, attribute = split_target(str(target))
    project, file = _project_of(path) if path else (None, None)
    declared = project.deploy_config.environment_variables if project else {}
    variables.put({**declared, **(given or {})})
    module = _import_file(file) if file else _import_module(str(target).partition(":")[0])
    env = _pick(module, attribute)
    if project is None:
        project = Project.named(env.__name__)
    contract = Contract(env)
    contract.name = project.name
    return Loaded(contract, project, variables, target, given or {})


def load_again(loaded: Loaded, more: Mapping[str, str]) -> Loaded:
    """The same environment with more variables in place before its own modules are imported anew.

    Third-party modules stay as they are; a class that was given as such cannot be imported anew.
    """
    if isinstance(loaded.target, type) or not loaded.target:
        loaded.variables.put(more)
        return loaded
    home = Path(inspect.getfile(loaded.contract.env)).parent
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(home):
            del sys.modules[name]
    return load(loaded.target, {**loaded.given, **more})


def project_of(target: str) -> Project:
    """The project file of a target, read without running any of its code."""
    path, attribute = split_target(target)
    return _project_of(path)[0] if path else Project.named(attribute or target)


def split_target(target: str) -> tuple[Path | None, str]:
    """The file or directory (None for a module) and the class a target names."""
    name, _, attribute = target.partition(":")
    path = Path(name).expanduser()
    if path.exists():
        return path.resolve(), attribute
    if (BUNDLED / name / "env.py").exists():
        return BUNDLED / name, attribute
    if "/" in name or name.endswith(".py"):
        raise LoadError(
            f"{name} does not exist: give a directory with env.py, a .py file or module:Class"
        )
    return None, attribute


def _project_of(path: Path) -> tuple[Project, Path]:
    if path.is_file():
        return Project.named(path.stem), path
    project = read_project(path)
    project.check_supported()
    file = path / project.entry
    if not file.is_file():
        raise LoadError(
            f"{path} has no {project.entry}: write one with functions, a class Actor or an "
            "Environment, or name another file as `entry` in the project file"
        )
    return project, file


def _import_module(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with boundary(LoadError, f"importing {name}"):
        return importlib.import_module(name)


def _import_file(file: Path) -> ModuleType:
    """Import a file under a name of its own, with its directory importable for its siblings."""
    _make_room_for(file.parent)
    if (file.parent / "__init__.py").exists():
        return _import_from_package(file)
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LoadError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with boundary(LoadError, f"importing {file}"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_from_package(file: Path) -> ModuleType:
    """A file inside a package is imported by its dotted name, so that its relative imports work."""
    parts = [file.stem]
    root = file.parent
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    _make_room_for(root)
    return _import_module(".".join(parts))


def _make_room_for(directory: Path) -> None:
    """Put an author's directory first, and forget other authors' modules that it has its own of."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        home = Path(file).parent if file else None
        clash = (directory / f"{name}.py").exists() or (directory / name).is_dir()
        if home in _author_directories and home != directory and clash:
            del sys.modules[name]
    _author_directories.add(directory)
    if str(directory) in sys.path:
        sys.path.remove(str(directory))
    sys.path.insert(0, str(directory))


def _pick(module: ModuleType, attribute: str) -> type[Environment[Any, Any, Any]]:
    """The one environment of a module: a named class, an Environment, an Actor or functions."""
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, type):
            raise LoadError(f"{module.__name__} has no class {attribute!r}")
        return _from_class(found, module)
    own = [
        c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__
    ]
    environments = [c for c in own if issubclass(c, Environment)]
    leaves = [
        c for c in environments if not any(c is not o and issubclass(o, c) for o in environments)
    ]
    actors = [c for c in own if c.__name__ == "Actor" and c not in leaves]
    if len(leaves) + len(actors) > 1:
        names = ", ".join(c.__name__ for c in [*leaves, *actors])
        raise LoadError(
            f"{module.__file__} has {names}: one file is one environment; name one as FILE:Class"
        )
    if leaves or actors:
        return _from_class((leaves or actors)[0], module)
    return _from_functions(module)


def _from_class(
    cls: type[Any], module: ModuleType | None = None
) -> type[Environment[Any, Any, Any]]:
    module = module or inspect.getmodule(cls)
    beside = _module_functions(module) if module else {}
    if issubclass(cls, Environment):
        marked = {n: fn for n, fn in beside.items() if mark_of(fn.__func__) and not hasattr(cls, n)}
        return _make(cls.__name__, cls, marked) if marked else cls
    return _from_actor(cls, beside)


def _from_functions(module: ModuleType) -> type[Any]:
    functions = _module_functions(module)
    if not functions:
        raise LoadError(
            f"{module.__file__} defines no environment: write a public function, a class Actor or "
            "an Environment subclass (names that start with _ and imported names do not count)"
        )
    doc = {"__module__": module.__name__, "__doc__": module.__doc__}
    return type(module.__name__, (Environment,), {**doc, **functions})


def _from_actor(actor: type[Any], beside: dict[str, Any]) -> type[Any]:
    """An Environment that makes the Actor and hands its calls on; the Actor wins a name clash."""

    def __init__(self: Any) -> None:
        self._actor = actor()

    methods = {name: _delegate(actor, name, fn) for name, fn in public_functions(actor)}
    if isinstance(inspect.getattr_static(actor, "state", None), property):
        methods["state"] = property(lambda self: self._actor.state)
    doc = {"__module__": actor.__module__, "__doc__": actor.__doc__, "__init__": __init__}
    return type(actor.__name__, (Environment,), {**doc, **beside, **methods})


def _make(name: str, base: type[Any], more: dict[str, Any]) -> type[Any]:
    return type(name, (base,), {"__module__": base.__module__, "__doc__": base.__doc__, **more})


def _delegate(actor: type[Any], name: str, fn: Callable[..., Any]) -> Any:
    if isinstance(inspect.getattr_static(actor, name), staticmethod):
        return staticmethod(fn)

    @functools.wraps(fn)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._actor, name)(*args, **kwargs)

    return call


def _module_functions(module: ModuleType) -> dict[str, Any]:
    """What the module itself defines: no imported and no private name."""
    return {
        name: staticmethod(fn)
        for name, fn in vars(module).items()
        if inspect.isfunction(fn) and fn.__module__ == module.__name__ and not name.startswith("_")
    }
