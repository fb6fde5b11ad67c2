"""An OpenEnv package on OpenEnv's own server."""

import importlib
import socket
import sys
from pathlib import Path

import uvicorn

package = Path(sys.argv[1])
sys.path.insert(0, str(package.parent))
app = importlib.import_module(f"{package.name}.server.app").app
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
