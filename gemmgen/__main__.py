"""Where the command starts: nothing is imported before a Ctrl-C can be answered.

Nor before a SIGTERM, by which `timeout` and schedulers end what takes too long.
"""

import signal
import sys


def main() -> int:
    """Run one command and return its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from gemmgen.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("gemmgen: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
