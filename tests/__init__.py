"""The tests mirror the tree; flows/, e2e/ and architecture/ look at the whole."""
