"""The ops flow: its rules, the instructions it gives to workers, and what users mean."""
