"""Deployments: releases of one folder, one of which is live, and the worker that makes them."""

from effects.workers.deployment.worker import Deployment, DeployWorker

__all__ = ["DeployWorker", "Deployment"]
