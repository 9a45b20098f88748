"""The old stack: one file per flow, prompts in Jinja2, loops written by hand."""
