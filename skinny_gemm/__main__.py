"""`python -m skinny_gemm COMMAND`: see `cli`."""

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    try:
        from .cli import run  # here, so that an interrupt while modules load ends like any other

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)  # behind the terminal's ^C
        return 130


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # tearing down the compiler's modules would take 0.7 s
