"""How stacks reach the world: the tape, the ports' adapters with their fakes, support for tests."""
