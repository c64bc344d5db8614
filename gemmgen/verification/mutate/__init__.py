"""Faults planted in modules, which the checks must find."""
