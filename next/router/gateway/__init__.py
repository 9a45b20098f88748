"""The tape, served: what services and SDKs ask for comes here, and goes on the tape of its run."""
