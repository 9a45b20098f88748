"""The console: a page that shows a rollout as it goes, and where its shares are set."""
