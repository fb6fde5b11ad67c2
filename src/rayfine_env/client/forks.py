"""Forked children start afresh: they must not use their parent's connections, ids and locks."""

import os
import weakref


class Forkable:
    """Is told in a forked child, where only the thread that forked goes on."""

    def __init__(self) -> None:
        _living.add(self)

    def after_fork(self) -> None:
        raise NotImplementedError


_living: weakref.WeakSet[Forkable] = weakref.WeakSet()
_generation = 0


def generation() -> int:
    """How many forks lie between this process and the one that first imported this."""
    return _generation


def _tell() -> None:
    global _generation
    _generation += 1
    for each in list(_living):
        each.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_tell)
