"""`python -m benchmarks`: every figure, each side by side in one run."""

import logging

from benchmarks import comparing, cost, gateway, passing, shadowed

logging.disable(logging.WARNING)
cost.figures()
gateway.figures()
comparing.figures()
passing.figures()
shadowed.figures()
