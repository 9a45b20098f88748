"""The router: assigns, serves, takes over, mirrors and records. Knows no flow by name."""
