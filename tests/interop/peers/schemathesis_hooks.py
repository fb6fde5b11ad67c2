"""Keeps Schemathesis from asking for what the arena does wrong or slowly on purpose."""

from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection


@schemathesis.hook  # type: ignore[untyped-decorator]
def map_body(context: Any, body: Any) -> Any:
    """No naps, and not its unlucky number."""
    for asked in (body, body.get("action") if isinstance(body, dict) else None):
        if isinstance(asked, dict):
            if type(asked.get("sleep")) in (int, float):
                asked["sleep"] = 0
            if asked.get("amount") == 13:
                asked["amount"] = 12
    return body


@schemathesis.check  # type: ignore[untyped-decorator]
def refuses_what_is_wrong(context: Any, response: Any, case: Any) -> Any:
    """The check of its own, but that true and false may stand for numbers.

    A call that was taken back before it came, or whose id was used before, is not looked into.
    """
    if has_flag(case.body) or response.status_code in (499, 503):
        return None
    return negative_data_rejection(context, response, case)


def has_flag(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_flag, value.values()))
    return isinstance(value, bool) or (isinstance(value, list) and any(map(has_flag, value)))
