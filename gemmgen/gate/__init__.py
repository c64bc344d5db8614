"""What a generated file may hold, and the names that it keeps for itself."""
