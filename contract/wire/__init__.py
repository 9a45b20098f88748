"""Reading events off a wire: frames, dialects and paths, without I/O."""
