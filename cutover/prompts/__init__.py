"""Prompts moved from Jinja2 to PromptTemplate: what converts, what stays, and proof."""
