"""A simulated OpenAI-compatible provider whose answers follow from the request alone."""

from loadtests.simulator.app import Simulator
from loadtests.simulator.ending import (
    Complete,
    Cut,
    Ending,
    ErrorEvent,
    HttpError,
    NoDone,
    Reset,
    SilentBeforeFirst,
    Stall,
)
from loadtests.simulator.ledger import Ledger, Record
from loadtests.simulator.plan import plan
from loadtests.simulator.process import SimulatorDidNotStart, spawn
from loadtests.simulator.profile import Profile
from loadtests.simulator.request import ChatCompletionRequest
from loadtests.simulator.script import Chunk, Script
from loadtests.simulator.server import Served, running

__all__ = [
    "ChatCompletionRequest",
    "Chunk",
    "Complete",
    "Cut",
    "Ending",
    "ErrorEvent",
    "HttpError",
    "Ledger",
    "NoDone",
    "Profile",
    "Record",
    "Reset",
    "Script",
    "Served",
    "SilentBeforeFirst",
    "Simulator",
    "SimulatorDidNotStart",
    "Stall",
    "plan",
    "running",
    "spawn",
]
