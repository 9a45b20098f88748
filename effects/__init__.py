"""The world the flows act on: each module holds effects, and what performs them."""
