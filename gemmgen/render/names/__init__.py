"""The names of what is rendered: of files, and of what would mean two things."""
