"""A simulated OpenAI-compatible provider whose answers follow from the request alone."""

from loadtests.simulator.app import Simulator
from loadtests.simulator.ledger import Record, RequestLedger
from loadtests.simulator.profile import (
    Complete,
    Cut,
    Ending,
    ErrorEvent,
    HttpError,
    NoDone,
    Profile,
    Reset,
    SilentBeforeFirst,
    Stall,
)
from loadtests.simulator.request import ChatCompletionRequest
from loadtests.simulator.script import AnswerScript, TimedChunk, script_for
from loadtests.simulator.server import Served, running, spawn

__all__ = [
    "AnswerScript",
    "ChatCompletionRequest",
    "Complete",
    "Cut",
    "Ending",
    "ErrorEvent",
    "HttpError",
    "NoDone",
    "Profile",
    "Record",
    "RequestLedger",
    "Reset",
    "Served",
    "SilentBeforeFirst",
    "Simulator",
    "Stall",
    "TimedChunk",
    "running",
    "script_for",
    "spawn",
]
