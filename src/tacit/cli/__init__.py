"""The command line: one thin file a command; heavy imports happen inside the commands."""
