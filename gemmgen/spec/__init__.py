"""A spec file → the kernels that it asks for, each value with its place."""
