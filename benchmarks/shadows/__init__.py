"""What shadows cost: alongside served requests, and on workers."""
