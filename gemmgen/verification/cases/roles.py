"""What schedules call the tensors of a call. Needs no torch."""

from gemmgen.select.plan import Plan


def tensor_roles(plan: Plan) -> list[str]:
    """What schedules call each tensor of a call, inputs first; "vectors" are never."""
    operands = [operand for operand in plan.operands if not operand.is_number]
    middle = ["operands" if operand.is_matrix else "vectors" for operand in operands]
    return ["inputs", "inputs", *middle, *["results"] * len(plan.results)]
