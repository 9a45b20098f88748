"""How fast the stacks are: provider simulator, load shapes, drivers, benchmarks."""
