"""Several workers on one address: started, watched, restarted and stopped by one process."""

from cutover.server.workers.line import Line
from cutover.server.workers.places import Place, SharingImpossible, places
from cutover.server.workers.supervisor import Supervisor

__all__ = ["Line", "Place", "SharingImpossible", "Supervisor", "places"]
