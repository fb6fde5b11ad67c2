"""For authors' tests: the contract as a program, and fixtures for pytest."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .contract import assert_contract, check
    from .findings import Finding

__all__ = ["Finding", "assert_contract", "check"]


def __getattr__(name: str) -> Any:
    """Late, because pytest loads the plugin in this package before anybody asks for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Finding":
        from .findings import Finding

        return Finding
    from . import contract

    return getattr(contract, name)
