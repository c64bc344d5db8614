"""`Plan` → the text of a module."""
