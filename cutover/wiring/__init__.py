"""From settings to a router: stacks, models, stores, tools, telemetry."""
