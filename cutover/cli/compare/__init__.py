"""Commands that compare: captures, replays, loads and answers, up to the verdict."""
