"""`Plan` → the texts of a kernel's files."""
