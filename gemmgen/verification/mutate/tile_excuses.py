"""Of tiles and what warp-specialized kernels share: mutants that nothing can tell."""

from gemmgen.verification.mutate.same import EITHER, SLOWER, Same

_OTHER_PIECES = "the same in pieces, or in boxes, of other sizes"
_OWN_BUFFER = "a last part that could share a buffer has its own: more room is taken"
_STEPS = "in how many steps a block is multiplied costs time alone"
_MET = "CTAs meet of Triton 3.8 alone, whose interpreter sees it"
_ONE_BY_ONE = "pieces are multiplied one by one, which takes longer"
_ONE_PIECE = "a power of two is one piece, which one wgmma multiplies either way"
_EXCHANGED = (
    "of exchanged sides those in one too are powers of two, which are one piece"
)
_HALVED = "a sum of 256 columns is halved four times to twice the least piece"
_WHERE = "which thread has an element, and which bank, costs time alone"
_LIKE = "of this sum the shape and the layout count, not what it holds"
_CHOSEN = "nothing asks the tile of a call whom it stands for"

TILES: dict[str, tuple[Same, ...]] = {
    "_runtime/pipeline/blocks.py": (
        Same(
            "condition dropped",
            "descs[0].layout != descs[1].layout",
            _OWN_BUFFER,
            "return len(descs) > 1\n",
        ),
    ),
    "_runtime/pipeline/clusters.py": (
        Same("cluster taken for one CTA", "gl.num_ctas()", _MET, "MEETS and 1 > 1"),
    ),
    "_runtime/pipeline/consumer.py": (
        Same("condition dropped", "rows * warpgroups * shared > 128", _STEPS),
        Same("condition dropped", "large and warpgroups > 1", _STEPS),
        Same("never taken", "large and warpgroups > 1", _STEPS),
        Same("always taken", "large and warpgroups > 1", _STEPS),
        Same("bound moved by one", "rows * warpgroups * shared > 128", _STEPS),
        Same("bound moved by one", "rows * shared > 64 * 96", _STEPS),
        Same("bound moved by one", "warpgroups > 1", _STEPS),
    ),
    "_runtime/pipeline/simt.py": (
        Same("rounded before the epilogue", "like = acc.reshape", _LIKE),
        Same("never taken", "if rows > columns:", _WHERE),
        Same("always taken", "if rows > columns:", _WHERE),
        Same("bound moved by one", "rows > columns", _WHERE),
        Same("statement dropped", "columns //= 2", _WHERE),
        Same("never taken", "1 if A_K_MAJOR else 4", _WHERE),
        Same("always taken", "1 if A_K_MAJOR else 4", _WHERE),
        Same("never taken", "1 if B_K_MAJOR else 4", _WHERE),
        Same("always taken", "1 if B_K_MAJOR else 4", _WHERE),
        Same("never taken", "if not K_MAJOR:", _WHERE),
        Same("always taken", "if not K_MAJOR:", _WHERE),
    ),
    "_runtime/pipeline/sums.py": (
        Same("half in another layout", "", "the same values in other registers"),
    ),
    "_runtime/pipeline/wgmma.py": (
        Same(
            "condition dropped",
            "dtype.primitive_bitwidth == 16",
            "sides of other types are powers of two",
            "lines = k == 64 and along_k",
        ),
        Same("never taken", "(m, n) if swap_ab else (n, m)", _EXCHANGED),
        Same("always taken", "(m, n) if swap_ab else (n, m)", _EXCHANGED),
        Same("always taken", "if not (able and PLACES_LARGEST_FIRST", _ONE_BY_ONE),
        Same("first of several left out", "gl.static_range(8)", _HALVED),
        Same("last of several left out", "gl.static_range(8)", _HALVED),
    ),
    "_runtime/sides.py": (
        Same("never taken", "256 if warpgroups < 3", _OTHER_PIECES),
        Same("always taken", "256 if warpgroups < 3", _OTHER_PIECES),
        Same(
            "bound moved by one",
            "warpgroups < 3",
            _OTHER_PIECES,
            "return 256 if warpgroups <= 3",
        ),
        Same("never taken", "200 if warpgroups < 3", _ONE_BY_ONE),
        Same("always false", "def in_one(", _ONE_BY_ONE),
        Same("bound moved by one", "part <= 128", _ONE_BY_ONE),
        Same("bound moved by one", "part * side <= 128 * most", _ONE_BY_ONE),
        Same(
            "condition dropped",
            "side & side - 1 > 0",
            _ONE_PIECE,
            "return few and ring > LARGER",
        ),
        Same("bound moved by one", "side & side - 1 > 0", _ONE_PIECE),
        Same("never taken", "min(larger[-1], max(BOX", _OTHER_PIECES),
        Same(
            "bound of min or max dropped",
            "max(BOX, side & -side)",
            _OTHER_PIECES,
            "min(larger[-1], side & -side)",
        ),
        Same(
            "value of another key",
            "{8: 10, 16: 13",
            "tiles whose pieces have times have sides that are multiples of 16",
            "{8: 13,",
        ),
        Same("condition dropped", "rows * columns <=", _OTHER_PIECES),
        Same("never taken", "rows * columns <=", _OTHER_PIECES),
        Same("always taken", "rows * columns <=", _OTHER_PIECES),
        Same("bound moved by one", "rows * columns <=", _OTHER_PIECES),
        Same("statement dropped", "columns //= ctas", _OTHER_PIECES),
        Same("never taken", "if cuts_columns else", _OTHER_PIECES),
        Same("always taken", "if cuts_columns else", _OTHER_PIECES),
        Same("bound of min or max dropped", "32 if cuts_columns", _OTHER_PIECES),
    ),
    "_runtime/tile.py": (
        Same("condition dropped", "beside and shared", _OTHER_PIECES),
        Same("always taken", "beside and shared", _OTHER_PIECES),
        Same("never taken", "larger[-1] if larger", _OTHER_PIECES),
        Same(
            "condition dropped", "cut and along_k", _OTHER_PIECES, "if cut else largest"
        ),
        Same("box of another piece", "larger[-1]", _OTHER_PIECES),
        Same("boxes exchanged", "tuple(first)", _OTHER_PIECES),
        Same("bound moved by one", "tiles >= self.waves", EITHER),
        Same("bound moved by one", "needed <= room", EITHER),
        Same("bound moved by one", "self.split_k > 0", "no tile has 0 parts of K"),
        Same("argument by name dropped", "self._replace(from_side=0", _CHOSEN),
        Same("always taken", "if self.split_k != 1 else 1", SLOWER),
        Same("bound moved by one", "drawn > 0", "where it is 0 it adds nothing"),
        Same(
            "bound of min or max dropped",
            "max(1, -(-tiles // times))",
            "programs that go from tile to tile take descriptors, which an empty "
            "matrix has none of",
        ),
        Same("never taken", "if wanted <= 1:", SLOWER),
        Same("bound moved by one", "wanted <= 1", SLOWER),
        Same("always taken", "min(self.starts) < sides.LINE", SLOWER),
        Same("bound moved by one", "min(self.starts) < sides.LINE", SLOWER),
    ),
}
"""By module."""

_OLD_NAME = "Triton 3.6 has the old name"
_LARGEST_FIRST = "Triton 3.6 places the largest first"

TILES_ON_OLDEST: dict[str, tuple[Same, ...]] = {
    "_runtime/pipeline/simt.py": (
        Same(
            "condition dropped",
            "getattr(async_copy, 'async_load'",
            _OLD_NAME,
            "copy_block = async_copy.async_copy_global_to_shared\n",
        ),
    ),
    "_runtime/pipeline/wgmma.py": (
        Same(
            "condition dropped",
            "getattr(_memory, 'reinterpret'",
            _OLD_NAME,
            "Any = _memory._reinterpret",
        ),
        Same(
            "condition dropped",
            "able and PLACES_LARGEST_FIRST",
            _LARGEST_FIRST,
            "if not able:",
        ),
        Same("bound moved by one", "VERSION < (3, 10)", _LARGEST_FIRST),
    ),
}
"""The same where the first of the Tritons that are served is installed."""
