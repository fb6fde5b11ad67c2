"""`python -m rayfine_env.server.schema PATH`: the hash of what an environment offers, as JSON."""

import hashlib
import json
import os
import sys

from ..authoring.load import load
from ..errors import RayfineError


def schema_hash(document: object) -> str:
    """The same for the same methods, types and texts, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def main() -> int:
    # What author code prints must not be taken for the answer.
    outlet = os.dup(1)
    os.dup2(2, 1)
    try:
        answer = {"schema": schema_hash(load(sys.argv[1]).contract.document)}
    except RayfineError as exc:
        answer = {"error": exc.message}
    os.write(outlet, json.dumps(answer).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
