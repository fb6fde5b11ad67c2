"""What of a directory is sent to a build: nothing secret, nothing from outside of it."""

import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pathspec

from ..errors import ConfigError

# Whatever an ignore file says: these have no business in an image.
NEVER_SENT = (
    *(".git/", ".hg/", ".svn/", ".env", ".env.*", "*.env", ".envrc", ".netrc", ".pypirc", ".npmrc"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*"),
    *("id_ed25519*", ".ssh/", ".aws/", ".azure/", ".gnupg/", ".kube/", ".docker/", ".htpasswd"),
    *("credentials.json", "service-account*.json", ".git-credentials"),
)
_NOT_WANTED = ("__pycache__/", "*.pyc", ".venv/", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/")
_MOST_BYTES = 2 << 30
_MOST_FILES = 100_000


def read_context(root: Path) -> dict[str, Path]:
    """The files to send, by their names in the context; links that lead outside are refused."""
    ignored = _Ignored(root)
    found: dict[str, Path] = {}
    size = 0
    for path in _walk(root, root, ignored):
        name = path.relative_to(root).as_posix()
        _check(root, path, name)
        found[name] = path
        size += path.lstat().st_size
        if size > _MOST_BYTES or len(found) > _MOST_FILES:
            raise ConfigError(
                f"{root} holds more than {_MOST_FILES:,} files or {_MOST_BYTES >> 30} GiB to send; "
                "list in its .dockerignore what the image does not need"
            )
    return found


def pack(files: Mapping[str, Path], made: Mapping[str, bytes]) -> io.BytesIO:
    """A build context: files of a directory, then what was made for this build.

    Times and owners are left out: the same content is the same archive, and found in the cache.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files.keys() - made.keys()):
            _add_file(archive, name, files[name])
        for name in sorted(made):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(made[name]), 0o644
            archive.addfile(info, io.BytesIO(made[name]))
    packed.seek(0)
    return packed


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        archive.addfile(info)
        return
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        info.size = found.st_size
        info.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
        archive.addfile(info, file)


class _Ignored:
    """Which names are left out, by what the directory says and by what is never sent."""

    def __init__(self, root: Path) -> None:
        lines = [f"**/{pattern}" for pattern in _NOT_WANTED]
        lines += _lines(root / ".gitignore")
        lines += [_anchored(line) for line in _lines(root / ".dockerignore")]
        self._asked = pathspec.PathSpec.from_lines("gitignore", lines)
        self._never = pathspec.PathSpec.from_lines("gitignore", NEVER_SENT)

    def __call__(self, name: str, folder: bool) -> bool:
        spelled = f"{name}/" if folder else name
        # A folder whose files may be taken back in by a later line is walked through.
        return self._never.match_file(spelled) or (self._asked.match_file(spelled) and not folder)


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines() if file.is_file() else []


def _anchored(line: str) -> str:
    """A line of .dockerignore, whose patterns begin at the root, as one of .gitignore."""
    bare = line.strip()
    if not bare or bare.startswith("#"):
        return ""
    sign, pattern = ("!", bare[1:]) if bare.startswith("!") else ("", bare)
    cleaned = PurePosixPath("/", pattern.strip()).as_posix()
    return f"{sign}{cleaned if cleaned != '/.' else '/*'}"


def _walk(root: Path, folder: Path, ignored: _Ignored) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignored(path.relative_to(root).as_posix(), is_folder):
            continue
        if is_folder:
            yield from _walk(root, path, ignored)
        else:
            yield path


def _check(root: Path, path: Path, name: str) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        to = os.readlink(path)
        inside = os.path.normpath(path.parent / to)
        if os.path.isabs(to) or not Path(inside).is_relative_to(os.path.normpath(root)):
            raise ConfigError(
                f"{name} is a link to {to}, outside of {root}; copy what it points to, or list it "
                "in .dockerignore"
            )
    elif not stat.S_ISREG(mode):
        raise ConfigError(
            f"{name} is neither a file nor a link and cannot be sent; list it in .dockerignore"
        )
