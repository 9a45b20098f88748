"""Commands that operate a service: serve, raise, roll back, look after what is stored."""
