"""The HTTP server: listening sockets, connections, workers, shutdown and logging."""
