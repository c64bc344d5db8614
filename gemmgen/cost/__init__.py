"""What a tile takes of a target and how long, whatever its schedule; knows no spec."""
