"""HTTP: the application, its endpoints, request bodies and clients that disconnect."""
