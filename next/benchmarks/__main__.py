"""`python -m benchmarks`: every figure, each side by side in one run."""

import logging

from benchmarks import comparison, cost, gateway, passthrough, shadowed

logging.disable(logging.WARNING)
cost.figures()
gateway.figures()
comparison.figures()
passthrough.figures()
shadowed.figures()
