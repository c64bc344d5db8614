"""What a result should be, and by how much it may differ."""
