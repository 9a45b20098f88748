"""The HTTP/1.1 client of remote stacks: the hot path of a passed-through stream."""
