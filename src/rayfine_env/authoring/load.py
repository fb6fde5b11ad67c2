"""One loader: a directory, file, `package.module`, `module:Class` or class -> one Environment."""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import operator
import os.path
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import LoadError, boundary
from .contract import Contract, is_function, lies_in, near, public_functions
from .environment import Environment, mark_of
from .openenv import MANIFEST, entry_of, from_openenv, is_openenv
from .project import Project, read_project
from .variables import Variables

Target = str | Path | type[Any]
BUNDLED = Path(__file__).parent.parent / "envs"
_HOUSE = __name__.partition(".")[0]
_author_directories: set[Path] = set()
# sys.path and sys.modules are the whole process's; an env.py may itself load another.
_one_at_a_time = threading.RLock()


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

    The project file's variables, then the given ones, are in place before author code runs; where
    it cannot be loaded they are taken out again.
    """
    variables = Variables()
    try:
        with _one_at_a_time:
            return _load(target, given or {}, variables)
    except BaseException:
        variables.restore()
        raise


def _load(target: Target, given: Mapping[str, str], variables: Variables) -> Loaded:
    if isinstance(target, type):
        variables.put(given)
        contract = Contract(_from_class(target, inspect.getmodule(target)))
        return Loaded(contract, Project.named(target.__name__), variables, target, given)
    path, attribute = split_target(str(target))
    if path is None:
        variables.put(given)
        name = str(target).partition(":")[0]
        env = _pick(_import_target(name), attribute)
        project = Project.named(env.__name__)
    else:
        project, file, entry_class = _project_of(path)
        variables.put({**project.deploy_config.environment_variables, **given})
        env = _pick(_import_file(file), attribute or entry_class)
    contract = Contract(env)
    contract.name = project.name
    return Loaded(contract, project, variables, target, given)


def load_again(loaded: Loaded, more: Mapping[str, str]) -> Loaded:
    """The same environment with more variables in place before its own modules are imported anew.

    Third-party modules stay as they are; a class that was given as such cannot be imported anew.
    """
    if isinstance(loaded.target, type) or not loaded.target:
        variables = Variables()
        variables.put(more)
        return replace(loaded, variables=variables)
    with _one_at_a_time:
        _forget_own(loaded.contract.env.__module__)
        return load(loaded.target, {**loaded.given, **more})


def _forget_own(module: str) -> None:
    """Forget an environment's package, or what lies beside its file; it is imported anew."""
    found = sys.modules.get(module)
    if found is None or found.__file__ is None:
        return
    home, package = Path(found.__file__).parent, found.__package__
    for name in list(sys.modules):
        if (package and f"{name}.".startswith(f"{package}.")) or _is_from(home, name):
            del sys.modules[name]


def project_of(target: str) -> Project:
    """The project file of a target, read without running any of its code."""
    path, attribute = split_target(target)
    return _project_of(path)[0] if path else Project.named(attribute or target)


def split_target(target: str) -> tuple[Path | None, str]:
    """The file or directory (None for a module) and the class that a target names."""
    name, attribute = target, ""
    if ":" in target and not os.path.exists(target):
        name, _, attribute = target.rpartition(":")
    path = Path(os.path.expanduser(name))
    if name and os.path.exists(path) and not _is_only_a_package(path, name):
        return path.resolve(), attribute
    if name in _bundled():
        return BUNDLED / name, attribute
    if "/" in name or name.endswith(".py"):
        raise LoadError(
            f"{name} does not exist: give a directory with env.py, a .py file or module:Class"
        )
    return None, attribute


def _is_only_a_package(path: Path, name: str) -> bool:
    """`pkg` or `pkg:Class`, said beside a package of that name that is no environment itself."""
    signs = ("env.py", "config.json", "pyproject.toml")
    package = name.isidentifier() and (path / "__init__.py").exists()
    return package and not any((path / sign).exists() for sign in signs)


def _bundled() -> list[str]:
    return [file.parent.name for file in BUNDLED.glob("*/env.py")]


def _project_of(path: Path) -> tuple[Project, Path, str]:
    """The project of a file or directory, and the file and class that it begins with."""
    if path.is_file():
        return Project.named(path.stem), path, ""
    if (path / MANIFEST).is_file() and not (path / "env.py").is_file():
        name, file = entry_of(path)
        return Project.named(name), file, ""
    project = read_project(path)
    project.check_supported()
    entry, _, attribute = project.entry.partition(":")
    file = path / entry
    if not file.is_file():
        raise LoadError(
            f"{path} has no {entry}: write one with functions, a class Actor or an Environment, "
            "or name another file as `entry` in the project file"
        )
    return project, file, attribute


def _import_target(name: str) -> ModuleType:
    """Import `package.module`, also from the directory that we are in."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _import_module(name)
    except LoadError as exc:
        missing = getattr(exc.__cause__, "name", None)
        if not isinstance(exc.__cause__, ModuleNotFoundError) or not f"{name}.".startswith(
            f"{missing}."
        ):
            raise
        raise LoadError(
            f"{name!r} is neither a file nor a directory, a module that can be imported or a "
            f"bundled environment{near(name, _bundled())}"
        ) from exc


def _import_module(name: str) -> ModuleType:
    with boundary(LoadError, f"importing {name}"):
        return importlib.import_module(name)


def _import_file(file: Path) -> ModuleType:
    """Import a file under a name of its own, with its directory importable for its siblings."""
    _forget_clashes(file.parent)
    _put_first(file.parent)
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
        sys.modules.pop(name, None)
        raise
    return module


def _import_from_package(file: Path) -> ModuleType:
    """A file inside a package is imported by its dotted name, so that its relative imports work."""
    root = file.parent
    while (root / "__init__.py").exists():
        root = root.parent
    _forget_clashes(root)
    if root in _author_directories or str(root) not in sys.path:
        _put_first(root)
    name = ".".join(file.relative_to(root).with_suffix("").parts)
    module = _import_module(name)
    if not module.__file__ or not file.samefile(module.__file__):
        raise LoadError(
            f"{file} should be imported as {name}, but that is {module.__file__}: rename its "
            "package, or load it in a process of its own"
        )
    return module


def _put_first(directory: Path) -> None:
    """Where two environments share a process, an import inside a function finds the later's."""
    _author_directories.add(directory)
    if str(directory) in sys.path:
        sys.path.remove(str(directory))
    sys.path.insert(0, str(directory))


def _forget_clashes(directory: Path) -> None:
    """Other authors' modules make room for those that this directory has its own of."""
    others = _author_directories - {directory}
    tops = {name.partition(".")[0] for name in sys.modules}
    own = {top for top in tops if any(map(os.path.exists, _places(directory, top)))}
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        if any(_is_from(other, name) for other in others):
            del sys.modules[name]


def _places(directory: Path, name: str) -> tuple[str, str]:
    return f"{directory}/{name}", f"{directory}/{name}.py"


def _is_from(directory: Path, module: str) -> bool:
    return module.partition(".")[0] != _HOUSE and lies_in(directory, module)


def _pick(module: ModuleType, attribute: str) -> type[Environment[Any, Any, Any]]:
    """The one environment of a module: a named class, an Environment, an Actor or functions."""
    if attribute:
        return _from_class(_named(module, attribute), module)
    own = dict.fromkeys(
        found
        for name, found in vars(module).items()
        if isinstance(found, type) and found.__module__ == module.__name__ and name[0] != "_"
    )
    environments = [c for c in own if issubclass(c, Environment) or is_openenv(c)]
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


def _named(module: ModuleType, attribute: str) -> type[Any]:
    try:
        # A module may make its classes as they are asked for.
        with boundary(LoadError, f"finding {attribute} in {module.__file__}"):
            found = operator.attrgetter(attribute)(module)
    except LoadError as exc:
        if not isinstance(exc.__cause__, AttributeError):
            raise
        found = None
    if not isinstance(found, type):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise LoadError(f"{module.__file__} has no class {attribute!r}{near(attribute, classes)}")
    return found


def _from_class(cls: type[Any], module: ModuleType | None) -> type[Environment[Any, Any, Any]]:
    """An Environment as it is, or one made of another class; with what was written beside it.

    Beside an Actor every public function counts, beside another class those with a mark.
    """
    if is_openenv(cls):
        return from_openenv(cls)
    beside = _module_functions(module) if module else {}
    if cls.__name__ != "Actor" or issubclass(cls, Environment):
        beside = {name: fn for name, fn in beside.items() if mark_of(fn)}
    if not issubclass(cls, Environment):
        return _from_actor(cls, beside)
    more = {name: fn for name, fn in beside.items() if not hasattr(cls, name)}
    return _make(cls, cls, more) if more else cls


def _from_functions(module: ModuleType) -> type[Any]:
    functions = _module_functions(module)
    if not functions:
        raise LoadError(
            f"{module.__file__} defines no environment: write a public function, a class Actor or "
            "an Environment subclass (names that start with _ and imported names do not count)"
        )
    about = {"__module__": module.__name__, "__doc__": module.__doc__}
    return type(module.__name__, (Environment,), {**about, **functions})


def _from_actor(actor: type[Any], beside: dict[str, Any]) -> type[Any]:
    """An Environment that makes the Actor and hands its calls on; the Actor wins a name clash."""

    def __init__(self: Any) -> None:
        self._actor = actor()

    methods = {name: _delegate(name, fn) for name, fn in public_functions(actor)}
    state = inspect.getattr_static(actor, "state", None)
    if isinstance(state, property) and state.fget:
        methods["state"] = property(functools.wraps(state.fget)(lambda self: self._actor.state))
    if not methods and not beside:
        raise LoadError(f"{actor.__name__} has no public method; write one")
    return _make(actor, Environment, {"__init__": __init__, **beside, **methods})


def _make(like: type[Any], base: type[Any], content: dict[str, Any]) -> type[Any]:
    about = {"__module__": like.__module__, "__doc__": like.__doc__}
    return type(like.__name__, (base,), {**about, **content})


def _delegate(name: str, fn: Any) -> Any:
    if isinstance(fn, staticmethod):
        return fn

    @functools.wraps(fn)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._actor, name)(*args, **kwargs)

    return call


def _module_functions(module: ModuleType) -> dict[str, Any]:
    """What the module itself defines: no imported and no private name."""
    return {
        name: staticmethod(fn)
        for name, fn in vars(module).items()
        if is_function(fn) and fn.__module__ == module.__name__ and name[0] != "_"
    }
