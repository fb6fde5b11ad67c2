"""The `rayfine` command: one file per noun, each importing what it needs only when it runs."""

import signal
import sys
from typing import NoReturn

import click

from ..errors import RayfineError
from .build import build, eject
from .call import call
from .check import check
from .completion import completion
from .dev import dev
from .doctor import doctor
from .gc import gc
from .gen import gen
from .init import init
from .logs import logs
from .mcp import mcp
from .methods import methods
from .output import INTERRUPTED, Output
from .ps import ps
from .rollout import rollout
from .run import run
from .runs import export, report, rescore, view
from .serve import serve
from .stop import stop
from .tools import tools
from .version import version

EPILOG = """\b
Exit codes:
  0    it worked
  1    the environment refused the call, or failed at it
  2    the command line, the target or a project file is wrong
  3    what carries the environment failed, was full or took too long
  130  interrupted (143: terminated)

With --json, standard output is one JSON document, also where it fails; all else goes to
standard error. NO_COLOR=1 turns colours off.
"""


@click.group(
    commands=[
        *(init, dev, check, run),
        *(serve, call, methods, tools, mcp, gen),
        *(rollout, rescore, export, report, view),
        *(build, eject, ps, logs, stop, gc, doctor, completion, version),
    ],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
def rayfine() -> None:
    """Write an environment once, run it anywhere, call it every way.

    A TARGET is a directory with env.py, a .py file, package.module, module:Class, the name of a
    bundled environment such as echo, or the address of a running server: http://host:port or
    unix:/path/to.sock.
    """


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    # An exception, so that whatever was opened is closed on the way out.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # Read from argv: a command line that cannot be parsed is answered in JSON all the same.
    output = Output(as_json="--json" in sys.argv[1:])
    try:
        status = rayfine.main(standalone_mode=False, obj=output)
    except RayfineError as exc:
        status = output.fail(exc)
    except click.ClickException as exc:
        status = output.misused(exc)
    except click.Abort:
        status = INTERRUPTED
    sys.exit(status)
