"""How runs of the same exchange differ, what that means, and whether a rollout may go on."""
