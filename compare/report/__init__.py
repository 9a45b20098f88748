"""Pages and files that say what a comparison found."""
