"""What is compared: captures and recordings, read as exchanges, pairs and calls."""
