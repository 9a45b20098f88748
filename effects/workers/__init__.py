"""Workers: actions on machines, each an effect, and the audit log of what they did."""
