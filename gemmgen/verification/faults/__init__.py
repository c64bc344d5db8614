"""Kinds of faults, each with the edits of a syntax tree that make it."""
