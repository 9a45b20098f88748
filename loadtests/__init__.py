"""Load tests: how fast each stack answers, measured by users in an open or a closed loop.

`plan` says what is loaded, `runner` loads it, `report` says what came of it; `simulator` is the
provider both stacks call meanwhile. Imported by module: `users` and `shapes` patch the process.
"""
