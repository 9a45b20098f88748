"""Migration of prompts from Jinja2 to PromptTemplate, with proof of equal output."""
