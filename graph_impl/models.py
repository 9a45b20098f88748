"""Holding a request to the model it is for."""

from __future__ import annotations

from contract.errors import EffectFailed
from contract.ports import Effects
from rules.model_calls import check_limits, unknown_model


async def check_model(effects: Effects, model_id: str, max_tokens: int | None) -> None:
    """Refuse a model nobody registered, and what it cannot do; raises `Refused`."""
    try:
        info = await effects.model.lookup("model", model_id)
    except EffectFailed as failure:
        if failure.fault.code == "unknown_model":
            raise unknown_model(model_id) from failure
        raise
    check_limits(max_tokens, info)
