"""Several workers on one address: started, watched, restarted and stopped by one process."""

from cutover.workers.line import Line
from cutover.workers.places import Place, SharingImpossible, places
from cutover.workers.supervisor import Supervisor

__all__ = ["Line", "Place", "SharingImpossible", "Supervisor", "places"]
