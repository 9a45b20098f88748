"""What both stacks must speak: flows, ports, wire and records. Pure."""
