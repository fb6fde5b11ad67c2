"""A worker dies with the front, whatever it is doing: the kernel sees to it."""

import fcntl
import os
import signal


class Lifeline:
    """The read end of a pipe whose other end only the front holds.

    When the front is gone the kernel sends SIGKILL to the owner of the descriptor. No author code
    has to give way for that, and none can ignore it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._mine = -1

    def tie(self) -> None:
        """Tie this process to it. The owner belongs to the open file, so a fork opens its own.

        A sandbox has none (-1): it ends with the front as a whole.
        """
        if self.fd < 0:
            return
        if self._mine >= 0:
            os.close(self._mine)
        self._mine = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(self._mine, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(self._mine, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._mine, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
