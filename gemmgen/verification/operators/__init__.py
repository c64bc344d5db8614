"""A kernel as an operator of torch: how it is registered, entered, and what it is."""
