"""A simulated model provider: OpenAI's and Anthropic's APIs on loopback, without a model."""

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
from loadtests.simulator.request import FunctionCall, Message, ModelRequest
from loadtests.simulator.server import Received, Simulator

__all__ = [
    "Answer",
    "Cut",
    "ErrorEvent",
    "Fault",
    "FunctionCall",
    "Garbage",
    "Message",
    "ModelRequest",
    "NeverAnswers",
    "Received",
    "Reset",
    "Silence",
    "Simulator",
    "SlowFirst",
]
