"""`python -m rayfine_env.cli` is the command `rayfine`."""

from . import main

main()
