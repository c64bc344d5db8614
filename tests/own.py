"""The plans of our own kernels, read once for all tests of a process."""

from pathlib import Path

from gemmgen.select.plan import load

OWN = {plan.name: plan for plan in load(Path(__file__).parent.parent / "spec.yaml")}
"""By name, in the order of spec.yaml."""
