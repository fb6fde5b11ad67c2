"""Environments that rollouts are tried on."""

from pathlib import Path

HERE = Path(__file__).parent
WALK = str(HERE / "walk.py")
DESK = str(HERE / "desk.py")
