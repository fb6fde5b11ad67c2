"""A shop's service desk, to be worked by tools."""

from .env import Desk

__all__ = ["Desk"]
