"""The command line and composition root: the only place that names both stacks."""
