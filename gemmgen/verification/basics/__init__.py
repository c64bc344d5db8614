"""What every check speaks in: outcomes, profiles, failures."""
