"""`Plan` → the texts of a kernel's files, and what Triton tells apart in them."""
