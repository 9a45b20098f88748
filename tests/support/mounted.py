"""A service, and others below the names of their folders: `python mounted.py PORT FIRST OTHER…`."""

import sys
from runpy import run_path

import uvicorn

if __name__ == "__main__":
    port, first, *others = sys.argv[1:]
    app = run_path(f"{first}/service.py")["app"]
    for other in others:
        app.mount(f"/{other}", run_path(f"{other}/service.py")["app"])
    uvicorn.run(app, port=int(port))
