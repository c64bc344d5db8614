"""Clusters: two CTAs that have half of a tile's left side each and share the right one.

The tile is the cluster's. A block of the shared side is loaded once, into the shared
memory of both (multicast), by the first CTA, once both have emptied the stage. Triton
has such loads since 3.8.
"""

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

# Triton 3.8 has these two, 3.7 only the fence; 3.9 has none, and the CTAs of a cluster
# meet by itself.
fence_barriers: Any = getattr(mbarrier, "fence_init_release_cluster", None)
meet: Any = getattr(getattr(hopper, "cluster", None), "barrier", None)
MEETS = gl.constexpr(None not in (fence_barriers, meet))


@gluon.jit
def barrier_memory(COUNT: gl.constexpr):
    """Shared memory for COUNT barriers of each CTA."""
    CTAS: gl.constexpr = gl.num_ctas()
    LAYOUT: gl.constexpr = mbarrier.MBarrierLayout([[1]] if CTAS > 1 else [])
    return gl.allocate_shared_memory(gl.int64, [COUNT, CTAS], LAYOUT)


@gluon.jit
def common_barrier_memory(COUNT: gl.constexpr):
    """Shared memory for COUNT barriers at which both CTAs arrive; the first waits."""
    LAYOUT: gl.constexpr = mbarrier.MBarrierLayout([[0]])
    return gl.allocate_shared_memory(gl.int64, [COUNT, 1], LAYOUT)


@gluon.jit
def wait_for_all(empty, stage, phase):
    """Wait until a stage is empty: in this CTA, and in both of a cluster."""
    for i in gl.static_range(len(empty)):
        mbarrier.wait(empty[i].index(stage), phase)


@gluon.jit
def arrive_at_all(empty, stage, pred=True):
    """Tell this CTA's producer that a stage is empty, and the one of the cluster."""
    for i in gl.static_range(len(empty)):
        mbarrier.arrive(empty[i].index(stage), pred=pred)


@gluon.jit
def open_cluster():
    """Make barriers known to both CTAs, which arrive there."""
    if MEETS and gl.num_ctas() > 1:
        fence_barriers()
        meet(relaxed=True)


@gluon.jit
def close_cluster():
    """Stay until the other CTA arrives at no barrier here and loads nothing."""
    if MEETS and gl.num_ctas() > 1:
        meet()
