"""What an image may be called."""

import importlib.util
import os
import re

from ..authoring.load import BUNDLED
from ..authoring.project import Project
from ..errors import ConfigError

_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d))(?::\d+)?/"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_TAG = r":(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})"
_DIGEST = r"@(?P<digest>sha256:[0-9a-f]{64})"
_REFERENCE = re.compile(
    rf"(?P<host>{_HOST})?(?P<name>{_PART}(?:/{_PART})*)(?:{_TAG})?(?:{_DIGEST})?"
)
_MOST = 255


def is_reference(text: str) -> bool:
    """Whether it can be an image's name."""
    return len(text) <= _MOST and _REFERENCE.fullmatch(text) is not None


def is_image(text: str) -> bool:
    """Whether a target is an image: it has a tag or a digest, and is no path and no module."""
    found = _REFERENCE.fullmatch(text) if len(text) <= _MOST else None
    if found is None or not (found["tag"] or found["digest"]) or os.path.exists(text):
        return False
    return not _is_code(f"{found['host'] or ''}{found['name']}", found["tag"] or "")


def _is_code(name: str, attribute: str) -> bool:
    """Whether it is rather `file:Class`, `directory:Class` or `module:Class`.

    A directory often has the name of the image that is built of it: then it is the tag that tells,
    for classes have capital letters and tags hardly any.
    """
    if name.endswith(".py") or os.path.isfile(name):
        return True
    if (BUNDLED / name).is_dir() and attribute[:1].isupper():
        return True  # also where it is no identifier, as in gym:CartPole-v1
    if attribute == "latest" or not attribute.isidentifier():
        return False
    if os.path.isdir(name):
        return attribute[0].isupper()
    module = name.partition(".")[0]
    if not module.isidentifier():
        return False
    known = (BUNDLED / name).is_dir() or importlib.util.find_spec(module) is not None
    return known or attribute[0].isupper()


def checked_tag(text: str) -> str:
    """A name to give to an image, with the tag `latest` where it has none."""
    found = _REFERENCE.fullmatch(text) if len(text) <= _MOST else None
    if found is None or found["digest"]:
        raise ConfigError(
            f"{text[:80]!r} cannot be an image's name: it is lower-case letters, digits and single "
            "'.', '_' or '-' between them, such as affine or team/affine, then :tag if you like"
        )
    return text if found["tag"] else f"{text}:latest"


def registered(tag: str, registry: str | None) -> str:
    """The tag under a registry's name."""
    return checked_tag(f"{registry.rstrip('/')}/{tag}") if registry else tag


def default_tag(project: Project) -> str:
    """What the project file calls its image, else its own name and version."""
    config = project.build_config
    name = config.image_name or re.sub(r"[^a-z0-9]+", "-", project.name.lower()).strip("-") or "env"
    return checked_tag(f"{name}:{config.image_tag or project.version.replace('+', '-')}")
