"""One kernel on one device: what can be tried of it, and what was found so far.

Which things are tried, and in what order, is the business of `properties`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gemmgen.select.plan import Plan
from gemmgen.verification.basics.failure import Fault, fault_of
from gemmgen.verification.basics.part import WHOLE, Part
from gemmgen.verification.basics.profiles import Profile
from gemmgen.verification.cases.cases import (
    Case,
    compiled_cases,
    describe_case,
    interpreted_cases,
)
from gemmgen.verification.contract.layers import check_layer
from gemmgen.verification.contract.memory_rules import (
    check_in_place,
    check_memory_refusals,
)
from gemmgen.verification.contract.package import check_package
from gemmgen.verification.contract.parallel_layers import check_parallel_layer
from gemmgen.verification.contract.refusals import (
    check_numbers,
    check_refusals,
    check_traced_numbers,
    check_without_bf16,
)
from gemmgen.verification.contract.replacements import check_replacements
from gemmgen.verification.contract.tile_choice import check_choice
from gemmgen.verification.example import subject
from gemmgen.verification.example.backward import (
    SMALLEST,
    backward_cases,
    run_backward,
    small_passes,
)
from gemmgen.verification.example.edge_cases import beyond, describable
from gemmgen.verification.example.large_offsets import Far, far_call, give_back
from gemmgen.verification.example.one_example import Call, Wrong, check_results
from gemmgen.verification.example.one_example import run as run_example
from gemmgen.verification.example.subject import Variant
from gemmgen.verification.interpret.hardware import Refused
from gemmgen.verification.interpret.memory import OutOfBounds, Unclean
from gemmgen.verification.memory.misuse import Misuse
from gemmgen.verification.operators.checks import check_operator
from gemmgen.verification.oracle.comparison import Block
from gemmgen.verification.run.shrinking import try_drawn

_BACKWARDS = 20
"""Backwards at least: each draws which tensors learn, and how gradients lie."""


@dataclass
class Trial:
    """One kernel on one device, and what was found so far.

    `beat` is told every example before it runs, so that a crash has a name. Of all
    steps a `part` is done. With a `file`, only the tiles of its schedules are tried.
    `ran` and `largest` are the schedules that have run and the largest M, N and K.
    """

    plan: Plan
    path: Path
    device: torch.device
    beat: Callable[[str], object]
    part: Part = WHOLE
    file: str | None = None
    examples: int = 0
    worst: float = 0.0
    ran: set[str] = field(default_factory=set)
    largest: tuple[int, ...] = (0, 0, 0)
    module: ModuleType = field(init=False)

    @property
    def launcher(self) -> Callable[..., Any]:
        """The function under test."""
        return subject.launcher(self.plan, self.module)

    @property
    def processors(self) -> int:
        """How many tiles a GPU computes at once, at least; 0 for the interpreter."""
        if not self.on_gpu:
            return 0
        found = torch.cuda.get_device_properties(self.device).multi_processor_count
        return int(found)

    @property
    def on_gpu(self) -> bool:
        """Whether each new signature compiles a kernel."""
        return bool(self.device.type == "cuda")

    def draws(self, profile: Profile, tiles: int) -> list[int]:
        """How many examples each draw of a tile has.

        On a GPU each may compile a kernel anew: more and smaller draws, which several
        processes make at once.
        """
        examples = profile.examples_of(tiles)
        most = profile.at_once if self.on_gpu else examples
        count = -(-examples // most)
        return [examples // count + (i < examples % count) for i in range(count)]

    def forced(self, variant: Variant, step: Callable[[Variant], None]) -> None:
        """One step with every launch on one tile."""
        with variant.forced(self.module):
            step(variant)

    def attempt(self, name: str, action: Callable[[], Any]) -> Any:
        """Do something; any exception becomes a `Fault` that tells what was tried."""
        self.beat(name)
        try:
            return action()
        except (Wrong, OutOfBounds, Unclean, Misuse, Refused) as wrong:
            raise Fault("failed", f"{wrong}\n{name}") from wrong
        except Exception as error:
            fault = fault_of(error)
            raise Fault(fault.status, f"{fault.story}\n{name}") from error

    def case(self, case: Case, variant: Variant, again: bool = False) -> float:
        """Run one example; `again` too, also where its programs did not meet."""
        name = f"{describe_case(self.plan, case)}, {variant.name}"
        size = self.attempt(
            name,
            lambda: run_example(
                self.plan, self.launcher, case, variant.block, self.device, again
            ),
        )
        self.note(case, variant)
        self.worst = max(self.worst, float(size))
        return float(size)

    def note(self, case: Case, variant: Variant) -> None:
        """Keep what an example has shown."""
        self.examples += 1
        if not variant.described(self.plan) or describable(self.plan, case):
            self.ran.add(variant.schedule)
        self.largest = tuple(map(max, self.largest, (case.m, case.n, case.k)))

    def refuse(self) -> None:
        """Calls that must raise ValueError, and some that look as if they must."""
        given = (self.plan, self.launcher, self.device)
        self.examples += self.attempt(
            "refusals", lambda: check_refusals(*given) + check_numbers(*given)
        )
        self.of_module(
            ("an interpreter without bf16", check_without_bf16),
            ("numbers that are traced", check_traced_numbers),
        )
        self.examples += self.attempt(
            "memory that is shared",
            lambda: check_memory_refusals(*given) + check_in_place(*given),
        )

    def enter(self) -> None:
        """Calls as an operator of torch, and of an nn.Module if there is one."""
        self.examples += self.attempt(
            "the operator of torch",
            lambda: check_operator(self.plan, self.launcher, self.device),
        )
        if self.plan.module:
            self.layer()

    def layer(self) -> None:
        """Calls of its nn.Module, what that takes the place of, and parts of it."""
        self.of_module(
            ("the nn.Module", check_layer),
            ("the nn.Module in a model", check_replacements),
            ("the nn.Module of two devices", check_parallel_layer),
        )

    def of_module(self, *checks: tuple[str, Callable[..., int]]) -> None:
        """Checks of the kernel's module, each with what it is called."""
        for name, check in checks:
            self.examples += self.attempt(
                name, partial(check, self.plan, self.module, self.device)
            )

    def gradients(self, profile: Profile, number: int) -> None:
        """Whole backwards: calls through autograd that Hypothesis draws."""

        def action(case: Case) -> float:
            name = f"backward of {describe_case(self.plan, case)}"
            size = float(self.attempt(name, partial(self.backward, case)))
            self.examples += 1
            self.worst = max(self.worst, size)
            return size

        block = Block(*SMALLEST)
        if self.on_gpu:
            cases = compiled_cases(self.plan, block)
        else:
            few = interpreted_cases(self.plan, block)
            cases = few | interpreted_cases(self.plan, block, programs=9)
        folder = f"{self.plan.name}-backward-{self.device.type}"
        examples = max(_BACKWARDS, profile.examples)
        with small_passes(self.module, self.on_gpu):
            for case in backward_cases(self.plan):
                action(case)
            try_drawn(cases, action, profile, examples, number, folder)

    def backward(self, case: Case) -> float:
        """One call and its backward."""
        return run_backward(self.plan, self.launcher, case, self.device)

    def bring_out(self) -> None:
        """The kernel's name in the package of its folder."""
        folder, name = self.path.parent.parent, self.plan.name
        self.examples += self.attempt(
            "the folder's package", lambda: check_package(folder, name)
        )

    def choose(self, number: int) -> None:
        """Calls of the table's own choice."""
        self.examples += self.attempt(
            "the choice of a tile",
            lambda: check_choice(self.plan, self.module, number),
        )

    def fixed(self, cases: Sequence[Case], variant: Variant) -> None:
        """Examples that are always tried; of the large ones judging takes 20 GB."""
        for case in cases:
            self.case(case, variant)
        give_back(self.device)

    def far_away(self, places: Sequence[Far], variant: Variant) -> None:
        """Offsets beyond 2^31, along axes of tensors."""
        for place in places:
            try:
                call = far_call(self.plan, place, self.device)
            except (torch.OutOfMemoryError, OSError):
                return  # a small GPU, or a process so limited, cannot hold such tensors
            self.attempt(str(place), partial(self.far, call, variant))
            self.examples += 1
            del call
            give_back(self.device)

    def far(self, call: Call, variant: Variant) -> None:
        """One call with large offsets."""
        results = call.of(self.plan, self.launcher)
        check_results(self.plan, call, results, variant.block)

    def unforced(self, variant: Variant) -> None:
        """The module as it is: its own table, or its autotuner's race; bits repeat.

        Once with `out`, once with results that are made, which are new each time.
        """
        case = beyond(self.plan, variant.block, described=False)
        for given in (True, False):
            self.case(replace(case, given=given), variant, again=True)

    def drawn(
        self,
        variant: Variant,
        profile: Profile,
        examples: int,
        number: int,
        views: Sequence[str] | None = None,
        programs: int = 0,
    ) -> None:
        """The examples that Hypothesis draws for one tile; on a GPU of these views."""
        plan, block, roles = self.plan, variant.block, variant.described(self.plan)
        if self.on_gpu:
            cases = compiled_cases(plan, block, roles, views)
        else:
            cases = interpreted_cases(plan, block, roles, programs)
        folder = f"{plan.name}-{block}-{self.device.type}"

        def action(case: Case) -> float:
            return self.case(case, variant)

        try_drawn(cases, action, profile, examples, number, folder)
