"""Files in and out of a container; what comes out is a stranger's archive, and treated as one."""

import io
import tarfile
from pathlib import Path

from ..errors import ConfigError, InfraError, Unsupported

MOST_BYTES = 4 << 30
_MOST_MEMBERS = 100_000


def pack_path(source: Path) -> bytes:
    """A file or directory as an archive of it under its own name, owned by nobody in particular."""
    if not source.exists():
        raise ConfigError(f"{source} does not exist; name a file or directory to copy")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, arcname=source.name, filter=_anonymous)
    return packed.getvalue()


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 65532
    info.uname = info.gname = ""
    return info


def unpack_into(data: bytes, target: Path) -> None:
    """Unpack below `target`: nothing above it, no links out of it, no devices, no bombs."""
    if not hasattr(tarfile, "data_filter"):
        raise Unsupported("copying out needs Python 3.11.4 or newer: older ones unpack unsafely")
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|") as archive:
            _unpack(archive, target)
    except (tarfile.TarError, OSError, ValueError, OverflowError, KeyError) as exc:
        raise InfraError(
            f"what the container gave was not copied out: {exc}", phase="copy", retryable=False
        ) from exc


def _unpack(archive: tarfile.TarFile, target: Path) -> None:
    members, size = 0, 0
    for member in archive:
        members, size = members + 1, size + max(member.size, 0)
        if members > _MOST_MEMBERS or size > MOST_BYTES:
            raise tarfile.TarError(
                f"it is more than {_MOST_MEMBERS:,} files or {MOST_BYTES >> 30} GiB: copy less"
            )
        archive.extract(member, target, filter="data")
