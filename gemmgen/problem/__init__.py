"""One kernel as a problem: its tensors, its operands' meaning, its work."""
