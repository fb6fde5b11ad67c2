"""Starts a thread when it is imported: a fork of it would lack that thread."""

import os
import threading
import time

BEATS = 0


def _beat() -> None:
    global BEATS
    while True:
        BEATS += 1
        time.sleep(0.01)


threading.Thread(target=_beat, daemon=True).start()


def beats() -> int:
    return BEATS


def pid() -> int:
    return os.getpid()
