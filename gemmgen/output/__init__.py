"""The folder of generated files: what is in it, and how it is replaced."""
