"""The worker of shadows: exchanges off the routers' stream, run and written down elsewhere."""
