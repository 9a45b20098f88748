"""HTTP: the application, its endpoints, and the connections of clients."""
