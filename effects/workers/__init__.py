"""Workers: actions on machines, each an effect, and the audit log of what they did."""

from effects.workers.registry import (
    Impossible,
    Progress,
    Report,
    Result,
    Workers,
    WorkerSettings,
    action,
)

__all__ = ["Impossible", "Progress", "Report", "Result", "WorkerSettings", "Workers", "action"]
