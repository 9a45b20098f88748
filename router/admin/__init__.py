"""Admin: the operations API, its tokens, edits of the configuration and their record."""
