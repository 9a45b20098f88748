"""The serving process: its listeners, its log, its flags, and the apps it starts."""
