"""Where the command starts: nothing is imported before a Ctrl-C can be answered."""

import sys


def main() -> int:
    """Run one command and return its exit code."""
    try:
        from gemmgen.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("gemmgen: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
