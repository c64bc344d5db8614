"""What a launcher promises beside its numbers: refusals, operator, module, its tile."""
