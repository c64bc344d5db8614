"""What a launcher promises beside its numbers: refusals, module, its tile."""
