"""How the world is reached: a port a file, with its adapters and its fake; tape and playing."""
