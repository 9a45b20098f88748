"""What the simulator answers with: prose, tasks, and instructions to workers."""
