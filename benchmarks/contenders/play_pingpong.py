"""The limit of this machine: a message of 100 bytes to another process and back.

pingpong.py unix|tcp [PROGRAM]: answered by Python, or by a compiled program.
"""

import os
import socket
import subprocess
import sys

from contest import contend, timed

MESSAGE = b"x" * 100


def answer(sock: socket.socket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)
    os._exit(0)


def pair(kind: str) -> tuple[socket.socket, socket.socket]:
    if kind == "unix":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for sock in (one, other):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def main(kind: str, program: str = "") -> None:
    ours, theirs = pair(kind)
    if program:
        return by_program(program, ours, theirs)
    if os.fork() == 0:
        ours.close()
        answer(theirs)
    theirs.close()

    def ping() -> None:
        ours.sendall(MESSAGE)
        ours.recv(65536)

    contend({"one": lambda steps: timed(steps, ping)})


def by_program(program: str, ours: socket.socket, theirs: socket.socket) -> None:
    """Both sides compiled: it plays by itself and tells the seconds of all together."""
    fds = [str(ours.fileno()), str(theirs.fileno())]

    def play(steps: int) -> list[float]:
        command = [program, *fds, str(steps)]
        done = subprocess.run(command, pass_fds=[*map(int, fds)], capture_output=True, check=True)
        return [float(done.stdout) / steps] * steps

    contend({"one": play})


main(*sys.argv[1:])
