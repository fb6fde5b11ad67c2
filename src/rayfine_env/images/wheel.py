"""A wheel of this very installation, so that an image runs the version that built it."""

import base64
import hashlib
import io
import zipfile
from importlib import metadata
from pathlib import Path

_DISTRIBUTION = "rayfine-env"
_PACKAGE = Path(__file__).parent.parent
_KEPT = ("METADATA", "entry_points.txt")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def wheel_name() -> str:
    return f"rayfine_env-{metadata.version(_DISTRIBUTION)}-py3-none-any.whl"


def requirements() -> list[str]:
    """What the core needs beside itself, without any extra."""
    return sorted(one for one in metadata.requires(_DISTRIBUTION) or [] if "extra ==" not in one)


def pack_wheel() -> bytes:
    """The wheel; the same installation always gives the same bytes."""
    folder = f"rayfine_env-{metadata.version(_DISTRIBUTION)}.dist-info"
    files = {f"rayfine_env/{name}": data for name, data in _sources().items()}
    files |= {f"{folder}/{name}": data for name, data in _about().items()}
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o100644 << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _sources() -> dict[str, bytes]:
    found = (path for path in sorted(_PACKAGE.rglob("*")) if path.is_file())
    names = {path.relative_to(_PACKAGE): path for path in found}
    return {
        name.as_posix(): path.read_bytes()
        for name, path in names.items()
        if "__pycache__" not in name.parts
    }


def _about() -> dict[str, bytes]:
    distribution = metadata.distribution(_DISTRIBUTION)
    said = {name: distribution.read_text(name) for name in _KEPT}
    tags = "Wheel-Version: 1.0\nGenerator: rayfine\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return {"WHEEL": tags.encode()} | {name: text.encode() for name, text in said.items() if text}


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
