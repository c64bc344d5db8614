"""Where the command starts: nothing is imported before a Ctrl-C can be answered.

A SIGTERM, by which `timeout` and schedulers end what takes too long, is answered alike.
"""

import sys


def main() -> int:
    """Run one command and return its exit code."""
    try:
        import signal

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from gemmgen.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("gemmgen: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
