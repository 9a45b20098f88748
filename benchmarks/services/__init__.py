"""The example services under load, while their processes die."""
