"""Commands that set a service up, and show what is set up."""
