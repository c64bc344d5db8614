"""What launchers launch, checked without a GPU: a stand-in for its driver keeps it.

Every call of a launcher that remembers is compared with the same call of one that does
not, and both with what the call's tensors ask for.
"""
