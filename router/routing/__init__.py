"""Routing: which stack a request is assigned to, whether it is taken, and which tries first."""
