"""A small OpenAI-compatible server: real HTTP, an answer made by a function, faults on request."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = dict[str, Any]
USAGE = {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
Brain = Callable[[JSON], JSON]
"""From a request's body to the assistant's message."""


class Model:
    """What the server was asked, and which faults are still to come."""

    def __init__(self, brain: Brain) -> None:
        self.brain = brain
        self.asked: list[JSON] = []
        self.keys: list[str | None] = []
        self.faults: list[str] = []
        self.url = ""
        self.lock = threading.Lock()

    def fault(self) -> str:
        with self.lock:
            return self.faults.pop(0) if self.faults else ""


@contextlib.contextmanager
def serving(brain: Brain) -> Iterator[Model]:
    model = Model(brain)

    class Handler(_Handler):
        served = model

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: Model
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.close_connection = True
        match self.served.fault():
            case "429":
                return self._send(429, b'{"error": "slow down"}', {"Retry-After": "0.01"})
            case "500":
                return self._send(500, b"oops")
            case "400":
                return self._send(400, b'{"error": {"message": "no such model"}}')
            case "cut":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
                return None
            case "gone":
                return None
            case "garbage":
                return self._send(200, b"<html>")
            case "empty":
                return self._send(200, b'{"choices": []}')
        with self.served.lock:
            self.served.asked.append(body)
            self.served.keys.append(self.headers["Authorization"])
        assert self.path == "/v1/chat/completions"
        message = {"role": "assistant", "content": None, **self.served.brain(body)}
        self._stream(message) if body.get("stream") else self._answer(body, message)

    def _answer(self, body: JSON, message: JSON) -> None:
        choice: JSON = {"index": 0, "message": message, "finish_reason": "stop"}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": "a", "logprob": -0.5}] * 2}
            choice["token_ids"] = [5, 6]
        head = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"]}
        self._send(200, json.dumps({**head, "choices": [choice], "usage": USAGE}).encode())

    def _stream(self, message: JSON) -> None:
        """In pieces, as chunks, the way that models do."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for letter in message.get("content") or "":
            self._event({"choices": [{"delta": {"content": letter}}]})
        for index, call in enumerate(message.get("tool_calls") or ()):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            head = {"index": index, "id": call["id"], "function": {"name": name, "arguments": ""}}
            self._event({"choices": [{"delta": {"tool_calls": [head]}}]})
            for letter in arguments:
                piece = {"index": index, "function": {"arguments": letter}}
                self._event({"choices": [{"delta": {"tool_calls": [piece]}}]})
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        self._event({"choices": [], "usage": USAGE})
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, event: JSON) -> None:
        head = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        for choice in event["choices"]:
            choice.setdefault("index", 0)
        self._chunk(b"data: " + json.dumps({**head, **event}).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _send(self, status: int, data: bytes, headers: JSON | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Not to stderr."""


def call(name: str, id: str = "c1", **arguments: Any) -> JSON:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}
