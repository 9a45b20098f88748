"""What people may do to a router while it runs, who did it, and what they are shown."""
