"""What providers answer in APIs other than chat completions, as their SDKs read it."""

from pathlib import Path
from typing import Any

from loadtests.simulator import Simulator

RECORDED = Path(__file__).parent / "recorded"


def _responses(asked: Any) -> str:
    name = "responses.sse" if asked.get("stream") else "responses.json"
    return (RECORDED / name).read_text("utf-8")


def _messages(asked: Any) -> str:
    """Return a tool's use, where tools are offered that have not answered; else text."""
    last = asked["messages"][-1]["content"]
    asks = asked.get("tools") and isinstance(last, str)
    return (RECORDED / ("messages-tool.sse" if asks else "messages.sse")).read_text("utf-8")


def answer_other_apis(sim: Simulator) -> None:
    """Have a simulator answer OpenAI's Responses and Anthropic's Messages."""
    sim.at("/v1/responses", _responses)
    sim.at("/v1/messages", _messages)
