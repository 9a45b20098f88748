"""Business rules and texts that both stacks share: pure functions over the contract."""
