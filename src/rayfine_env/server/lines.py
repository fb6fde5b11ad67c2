"""Messages between the processes of one server: whole ones, some with a descriptor along."""

import socket

_LARGEST = 1 << 18


def receive(line: socket.socket, descriptors: int = 1) -> tuple[bytes, int]:
    """One message and its descriptor, or -1; no bytes mean that the other side has ended."""
    try:
        data, fds, _, _ = socket.recv_fds(line, _LARGEST, descriptors)
    except ConnectionResetError:  # it ended before it had read all that it was sent
        return b"", -1
    return data, fds[0] if fds else -1
