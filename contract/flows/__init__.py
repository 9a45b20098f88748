"""The flows: what each takes, what it streams, how its broken streams end. One module a flow."""
