"""The command ``tpool``.

This module needs no other package: without the extra ``cli`` the command must still say what to install.
"""

from __future__ import annotations

import sys
from importlib import util

from tensor_pool.ops.cli import exit_codes

__all__ = ["main"]


def main() -> None:
    """Run ``tpool`` with the arguments of this process and end the process with its exit code."""
    for package in ("click", "rich"):
        if util.find_spec(package) is None:
            print(  # noqa: T201 - there may be no click to print with
                f"error: tpool needs {package}: pip install 'shm-tensor-pool[cli]'", file=sys.stderr
            )
            sys.exit(exit_codes.USAGE)
    try:
        from tensor_pool.ops.cli.root import run  # noqa: PLC0415 - see the module's docstring

        sys.exit(run())
    except KeyboardInterrupt:  # Ctrl-C while modules load; later ones are handled in run()
        sys.exit(exit_codes.INTERRUPTED)
