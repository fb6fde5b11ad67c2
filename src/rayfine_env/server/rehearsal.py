"""A play before the first guest: the path of a step, run once in the zygote.

What the interpreter learns about our code is written into that code's own memory. Learnt in the
zygote it is shared by all workers; learnt in each worker it would be a private copy in each.
"""

import contextlib
import socket

from ..authoring.contract import Contract
from ..authoring.environment import Environment
from ..authoring.load import Loaded
from ..authoring.models import Action, Observation, State
from ..authoring.project import Project
from ..wire import FRAME, Request, decode_reply, frame
from .lifeline import Lifeline
from .slots import Slots
from .worker import Knock, Worker, encode_knock

_TIMES = 40


class _Line(Action):
    text: str


class _Echo(Observation):
    text: str = ""


class _Stage(Environment[_Line, _Echo, State]):
    def reset(self, seed: int | None = None) -> _Echo:
        return _Echo()

    def step(self, action: _Line) -> _Echo:
        return _Echo(text=action.text, reward=1.0)

    def prompt(self, text: str = "") -> str:
        return text


def rehearse() -> None:
    """Serve a stand-in environment over a real socket, turn by turn."""
    front, door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, theirs = socket.socketpair()
    slots = Slots(1)
    with front, door, ours, contextlib.closing(slots):
        stage = Loaded(Contract(_Stage), Project.named("rehearsal"))
        worker = Worker(stage, slots, 0, door, Lifeline(-1))
        front.send(encode_knock(Knock("begin", "rehearsal")))
        worker.turn()
        with theirs:
            stream = encode_knock(Knock("stream", "rehearsal"))
            socket.send_fds(front, [stream], [theirs.fileno()])
        worker.turn()
        for request in _script():
            ours.sendall(frame(request))
            worker.turn()
            decode_reply(ours.recv(65536)[FRAME.size :])
        ours.shutdown(socket.SHUT_WR)
        worker.turn()


def _script() -> list[Request]:
    acts = [Request("reset", 1, kwargs={"seed": 1}), Request("state", 2)]
    for turn in range(_TIMES):
        acts.append(Request("step", 10 + turn, args=[{"text": "to be"}], timeout=5.0))
        acts.append(Request("call", 10_000 + turn, "prompt", kwargs={"text": "or not"}))
    return acts
