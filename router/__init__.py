"""Who serves: rollout, dispatch, takeover, shadow and capture. Knows no flow by name."""
