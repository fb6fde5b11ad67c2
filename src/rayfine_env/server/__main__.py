"""`python -m rayfine_env.server PATH`: what a provider starts."""

import argparse
import functools
import json
import logging
import os
import secrets
import signal
import sys
from pathlib import Path

from ..errors import RayfineError
from ..wire import encode_json, error_json
from .line import Line, end_after
from .roles import Role
from .serve import ServeOptions, serve


def main() -> int:
    args = _arguments()
    line = _line(args.line) if args.line else None
    # Variables come by standard input or a line: argv and the environment of a process can be read
    # by others.
    said = line.greeting() if line else {}
    variables = json.load(sys.stdin) if args.variables_on_stdin else said.get("variables", {})
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    token = secrets.token_urlsafe(24) if args.make_token else said.get("token")
    options = ServeOptions(
        target=args.target,
        host=args.host,
        port=args.port,
        uds=args.uds,
        tokens={token: Role.TRAINER} if token else {},
        no_auth=args.no_auth,
        require_session=args.require_session,
        id=args.id,
        isolation=args.isolation,
        capacity=args.capacity,
        variables=variables,
        listener=line.listener if line else None,
    )
    tell = line.tell if line else functools.partial(_tell, args.ready_fd)
    if line and said["bound"]:
        line.end_with_it()
    if said.get("ttl"):
        end_after(said["ttl"])
    # uvicorn raises the signal again when it is done: it must not end us before the clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        serve(options, lambda address: tell(encode_json({"address": address, "token": token})))
    except RayfineError as exc:
        tell(error_json(exc))
        return 1
    return 0


def _line(where: str) -> Line:
    return Line.by_standard_streams() if where == "-" else Line.by_socket(Path(where))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rayfine_env.server")
    parser.add_argument("target")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--uds", type=Path)
    parser.add_argument("--make-token", action="store_true", help="make one and tell it")
    parser.add_argument("--no-auth", action="store_true")
    parser.add_argument("--require-session", action="store_true")
    parser.add_argument("--id", help="under which `rayfine ps` lists it")
    parser.add_argument("--isolation")
    parser.add_argument("--capacity", type=int)
    parser.add_argument("--variables-on-stdin", action="store_true")
    parser.add_argument("--line", help="a client's Unix socket, or - for the standard streams")
    parser.add_argument("--ready-fd", type=int, help="where one line of JSON tells the outcome")
    return parser.parse_args()


def _tell(fd: int | None, line: bytes) -> None:
    if fd is None:
        sys.stderr.write(line.decode() + "\n")
        return
    os.write(fd, line + b"\n")
    os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
