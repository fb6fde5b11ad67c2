"""An environment whose project file sets its limits, in the older spelling too."""

import os


def reset(seed: int | None = None) -> str:
    return "ready"


def where() -> str | None:
    return os.environ.get("WHERE")
