"""`gemmgen tune`: `session` measures tiles on a GPU, `calibration` fits the model.

Imports nothing itself: calibration is arithmetic, and needs no torch.
"""
