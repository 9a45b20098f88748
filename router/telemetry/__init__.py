"""What operators see of a router, and switch: metrics, traces, status, flags."""
