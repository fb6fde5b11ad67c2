"""An env.py on affinetes' own server, which an image of its would hold as a file."""

import socket
import sys
from pathlib import Path

import affinetes
import uvicorn

template = Path(affinetes.__file__).parent / "templates" / "http_server.py"
names: dict[str, object] = {"__name__": "http_server"}
exec(template.read_text().replace("/app/env.py", sys.argv[1]), names)
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
config = uvicorn.Config(names["app"], log_level="warning")  # type: ignore[arg-type]
uvicorn.Server(config).run(sockets=[listener])
