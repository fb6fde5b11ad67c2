"""What the server says its environment offers, so that a wrong name costs no round trip."""

from ..authoring.contract import near
from ..errors import JSON


class Description:
    """The contract document, read by clients."""

    def __init__(self, document: JSON) -> None:
        self.document = document
        self._kinds = {method["name"]: method["kind"] for method in document["methods"]}

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def method_names(self) -> list[str]:
        return list(self._kinds)

    @property
    def tools(self) -> list[JSON]:
        return [
            {"name": m["name"], "description": m["description"], "inputSchema": m["input"]}
            for m in self.document["methods"]
            if m["kind"] == "tool"
        ]

    @property
    def limits(self) -> dict[str, float | None]:
        """The server's own deadline for each op: well past it no answer is to be expected.

        The first call of a session makes the environment, which has a deadline of its own.
        """
        said = self.document.get("timeouts") or {}
        kinds = {"reset": "reset", "step": "step", "call": "call", "tool": "call", "state": "call"}
        return {op: _both(said.get("construct"), said.get(kind)) for op, kind in kinds.items()}

    def op_of(self, name: str) -> str:
        """Tools go by their own op, which agents may use."""
        return "tool" if self._kinds.get(name) == "tool" else "call"

    def check_method(self, name: str) -> None:
        if name not in self._kinds:
            raise AttributeError(
                f"{self.name} has no method {name!r}{near(name, self.method_names)}"
            )


def _both(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
