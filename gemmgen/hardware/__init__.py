"""The GPUs: what an architecture has, and the names that people know them by."""
