"""Tuning files: what was timed on a GPU, and what follows from it for a kernel."""
