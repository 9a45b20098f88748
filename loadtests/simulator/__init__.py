"""A simulated model provider: chat completions and embeddings on loopback, without a model."""

from loadtests.simulator.answer import (
    Answer,
    Cut,
    ErrorEvent,
    Fault,
    Garbage,
    NeverAnswers,
    Reset,
    Silence,
    SlowFirst,
)
from loadtests.simulator.request import FunctionCall, ModelRequest
from loadtests.simulator.server import Simulator

__all__ = [
    "Answer",
    "Cut",
    "ErrorEvent",
    "Fault",
    "FunctionCall",
    "Garbage",
    "ModelRequest",
    "NeverAnswers",
    "Reset",
    "Silence",
    "Simulator",
    "SlowFirst",
]
