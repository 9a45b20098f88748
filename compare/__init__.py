"""How two runs differ: alignment, findings, statistics, the gate. Reads records, never code."""
