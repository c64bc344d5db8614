"""YAML text → a tree of values that know their places."""
