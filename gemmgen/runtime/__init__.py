"""What generated launchers share: copied into every output folder as it stands."""
