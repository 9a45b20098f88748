"""Configuration: `cutover.toml` as one frozen value, checked, watched and never half in force."""
