"""A kernel's tiles and the table that chooses among them: `Spec` → `Plan`."""
