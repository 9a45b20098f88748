"""`cutover demo`: a rollout in six acts, made of the real commands on loopback, without a key."""

from harness.demo.story import run_demo

__all__ = ["run_demo"]
