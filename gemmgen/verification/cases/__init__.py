"""The calls that a kernel is tried on: sizes, views, data."""
