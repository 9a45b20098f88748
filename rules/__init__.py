"""Business rules and texts neither stack may change. Pure functions over the contract."""
