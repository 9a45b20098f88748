"""Workers that carry out instructions: the registry of real ones, and fakes of port and audit log.

The real ones are imported by their modules: `system`, `network`, `container`, `deploy`.
"""

from effects.workers.fake import MemoryAudit, ScriptedWorkers, WorkerStep
from effects.workers.registry import WorkerRegistry

__all__ = ["MemoryAudit", "ScriptedWorkers", "WorkerRegistry", "WorkerStep"]
