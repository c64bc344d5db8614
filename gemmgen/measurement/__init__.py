"""How long calls take, and for which inputs: what `bench` and `tune` measure with.

`race` times calls on the GPU against each other, `cpu_time` what they cost the CPU,
`problem` makes a kernel's inputs, and `judge` says how far results are from float64.
"""

from gemmgen.measurement.gpu import Gpu, environment
from gemmgen.measurement.host import cpu_time
from gemmgen.measurement.problem import Judgement, Problem, judge, problem
from gemmgen.measurement.race import Device, Timing, race

__all__ = [
    "Device",
    "Gpu",
    "Judgement",
    "Problem",
    "Timing",
    "cpu_time",
    "environment",
    "judge",
    "problem",
    "race",
]
