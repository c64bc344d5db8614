"""The command line: arguments, what commands print, exit codes."""
