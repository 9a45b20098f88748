"""The layers of a comparison, outside in: outcome, grammar, frames, text, effects; and timing."""
