"""The pre-commit hook: `gemmgen build`, and then what git would leave out.

pre-commit sees what changed in files that git knows; new ones it does not look at.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gemmgen.cli import main as cli
from gemmgen.output import folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check, as the arguments of `gemmgen build` say; 1 for untracked files.

    Files that git is told to ignore are nobody's mistake.
    """
    given = ["build", *(sys.argv[1:] if arguments is None else arguments)]
    code = cli.main(given)
    if code:
        return code
    out = cli.output_folder(given)
    try:
        left_out = _untracked(out)
    except subprocess.CalledProcessError:  # git has said why
        return 2
    for path in left_out:
        print(f"{path}: not in git; next: git add {out}", file=sys.stderr)
    return 1 if left_out else 0


def _untracked(out: Path) -> list[Path]:
    """The generated files that git neither tracks nor ignores.

    A kernel's folder, or what all share, is told as one.
    """
    names = [name for name, file in folder.look(out).items() if file.text is not None]
    listing = ["git", "-C", str(out), "ls-files", "--others", "--exclude-standard"]
    done = subprocess.run([*listing, "-z", "--", *names], stdout=subprocess.PIPE)
    done.check_returncode()
    found = sorted(name for name in done.stdout.decode().split("\0") if name)
    return list(dict.fromkeys(out / Path(name).parts[0] for name in found))


if __name__ == "__main__":
    sys.exit(main())
