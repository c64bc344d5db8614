"""From times to costs: what tiles cost, and which of them are kept."""
