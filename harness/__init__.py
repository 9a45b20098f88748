"""The command line and the composition root: the only place that names both stacks."""
