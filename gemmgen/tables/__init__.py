"""The tables that a new dtype, layout, operation or function is a row of."""
