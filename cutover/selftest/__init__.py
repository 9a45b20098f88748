"""The self-test: whether the comparison finds what it must, and nothing else."""
