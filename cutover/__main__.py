"""`python -m cutover`."""

from cutover.cli import main

main()
