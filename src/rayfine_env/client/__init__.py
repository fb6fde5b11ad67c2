"""Talks to one session: protocol without I/O, and two thin drivers that move the bytes."""
