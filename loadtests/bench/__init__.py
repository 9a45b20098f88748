"""What each layer costs, measured on this machine; every module gives rows from `measure`."""
