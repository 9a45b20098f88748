"""The cost of the router in front of remote stacks, beside nginx."""
