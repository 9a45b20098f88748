"""What a conversation teaches, and which facts are the same."""
