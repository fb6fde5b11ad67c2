"""The page on errors names every code that there is, with its class."""

import re
from pathlib import Path

from rayfine_env.errors import BY_CODE

PAGE = (Path(__file__).parent.parent / "docs/errors.md").read_text()


def test_every_code_is_in_the_table() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.M))
    known = {code: cls.__name__ for code, cls in BY_CODE.items() if code != "error"}
    assert told == known
