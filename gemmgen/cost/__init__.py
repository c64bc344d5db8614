"""What a tile takes of a target: memory, registers, time; knows no spec."""
