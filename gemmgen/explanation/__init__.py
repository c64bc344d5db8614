"""`gemmgen explain`: why a kernel runs a shape as it does.

`argument` gathers the facts, `text` tells them, `plot` draws them; nothing is decided
here that the launcher's table does not say.
"""

from gemmgen.explanation.argument import DEFAULT, argue
from gemmgen.explanation.facts import Argument

__all__ = ["DEFAULT", "Argument", "argue"]
