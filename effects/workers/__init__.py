"""Workers that carry out instructions: the registry of real ones, their log, and fakes of both.

The real ones are imported by their modules: `system`, `network`, `container`, `deployment`.
"""

from effects.workers.audited import AuditedWorkers
from effects.workers.fake import MemoryAudit, ScriptedWorkers, WorkerStep
from effects.workers.registry import WorkerRegistry

__all__ = ["AuditedWorkers", "MemoryAudit", "ScriptedWorkers", "WorkerRegistry", "WorkerStep"]
