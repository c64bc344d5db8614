"""What every room may use: errors, files, processes, the look of text and pictures."""
