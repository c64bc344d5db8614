"""The language of epilogues: text → a checked tree."""
