"""Texts, prompts' parameters, thresholds and tables that both stacks read and neither changes.

Pure data and functions: nothing here performs an effect or puts a message together.
"""
