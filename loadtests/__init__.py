"""Load on a router, and the simulated provider that answers in tests, demo and benches."""
