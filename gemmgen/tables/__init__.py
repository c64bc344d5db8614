"""The tables that a new dtype, layout, operation, function or schedule is a row of."""
