"""The text of a launcher as an nn.Module, whose parameters are nn.Linear's."""

import json
from dataclasses import dataclass, replace

from gemmgen.base.names import WIDTH, class_name
from gemmgen.problem.layer import Layer
from gemmgen.render.docs import Description, filled
from gemmgen.render.launcher_text import LauncherText
from gemmgen.render.names.parts import shared
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES


@dataclass(frozen=True)
class ModuleText:
    """The fragments of a kernel's `module.py`."""

    plan: Plan

    @property
    def layer(self) -> Layer:
        """Which arguments are parameters."""
        return Layer(self.plan)

    @property
    def name(self) -> str:
        """The class."""
        return class_name(self.plan.name)

    @property
    def layers(self) -> str:
        """Where the class that it extends is."""
        return shared(self.plan, "layers.base")

    @property
    def class_doc(self) -> str:
        """The class's docstring: shapes, types, which of them are parameters."""
        held, (right, *_) = self.layer.parameters, self.plan.contraction.rhs
        shapes = Description(self.plan).shapes
        shapes = shapes.replace(f", {right.name} [", f", {held[right.name]} [", 1)
        text = (
            f"{shapes} N is out_features, K in_features; {' and '.join(held.values())}"
        )
        text += f" {'are' if len(held) > 1 else 'is'} nn.Linear's."
        first = self.summary.replace("Return ", "A layer that returns ", 1)
        return f'"""{first}\n\n{filled(text, WIDTH - 4)}\n"""'

    @property
    def summary(self) -> str:
        """What a call returns: the formula if it is short."""
        right, *_ = self.plan.contraction.rhs
        first, *more = Description(self.plan).formula
        weight = replace(right, name=self.layer.parameters[right.name])
        value = first.partition(" = ")[2]
        text = value.replace(right.product_text, weight.product_text)
        line = f"Return {text}."
        long = more or len(line) > WIDTH - 24
        return f"Return what `{self.plan.name}` does." if long else line

    @property
    def statements(self) -> list[str]:
        """What the class says of its kernel."""
        bias, activation = self.layer.bias, self.layer.activation
        types = [self.plan.dtype, bias.dtype if bias else None]
        weight, bias_ = (f"torch.{DTYPES[one].torch}" if one else None for one in types)
        return [
            f"kernel = staticmethod({self.plan.name})",
            f"weight_type = {weight}",
            f"bias_type = {bias_}",
            f"activation = {activation and json.dumps(activation)}",
        ]

    @property
    def forward(self) -> str:
        """The arguments of a call with their types, and the type of what it returns."""
        launcher = LauncherText(self.plan)
        annotated = zip(
            self.plan.argument_names, launcher.annotated_arguments, strict=True
        )
        passed = [text for name, text in annotated if name in self.layer.passed]
        return f"({', '.join(['self', *passed])}) -> {launcher.returned_type}"

    @property
    def call(self) -> str:
        """The launcher's call."""
        held = {name: f"self.{one}" for name, one in self.layer.parameters.items()}
        passed = [held.get(name, name) for name in self.plan.argument_names]
        return f"{self.plan.name}({', '.join(passed)})"
