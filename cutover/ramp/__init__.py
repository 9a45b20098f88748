"""`cutover ramp`: raise percentages while the gate says promote, and roll back when it says so.

`machine` decides, `runner` acts; `flags` and `services` are turned, `state` survives a restart.
"""
