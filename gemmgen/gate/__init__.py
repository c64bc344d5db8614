"""What a generated module may hold, and the names that it keeps for itself."""
