"""The five built-in flows: requests, options, events and grammars."""
