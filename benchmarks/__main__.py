"""`python -m benchmarks [NAME ...]`: the figures of some benches, or of all."""

import logging
import sys

import uvloop

from benchmarks import comparison, cost, gateway, passthrough, shadowed

BENCHES = {
    "cost": cost.figures,
    "gateway": gateway.figures,
    "comparison": comparison.figures,
    "passthrough": passthrough.figures,
    "shadowed": shadowed.figures,
}


async def _print(*names: str) -> None:
    for name in names or BENCHES:
        async for line in BENCHES[name]():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


logging.disable(logging.WARNING)
uvloop.run(_print(*sys.argv[1:]))  # as the server does
