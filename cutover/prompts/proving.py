"""Proofs in processes of their own: one that hangs, or grows, is ended and says so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError
from cutover.prompts.case import DRAWN, Proof
from effects.extras import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from cutover.prompts.case import Case
    from router.config import PromptSettings

SECONDS = 10.0
START_SECONDS = 60.0
WORTH_A_PROCESS = 50
_PATIENCE_S = 5.0


class ProverLost(CutoverError):
    """No process to prove in can be started."""

    def __init__(self) -> None:
        super().__init__("the process that proves prompts ended before it began")


@dataclass(frozen=True, slots=True)
class Orders:
    """What all proofs have in common: the environment, how much is drawn, how long one may take."""

    settings: PromptSettings
    folder: Path
    count: int = DRAWN
    seconds: float = SECONDS


def prove_all(
    cases: Sequence[Case], orders: Orders, on_proof: Callable[[int], None]
) -> dict[str, Proof]:
    """Prove prompts, several at a time; `on_proof` hears how many there are in all, once each.

    Raises `MissingExtra`, `ProverLost`.
    """
    if find_spec("hypothesis") is None:
        what = "proof of prompts (--no-prove goes without)"
        raise MissingExtra(what, "prompts")
    left = deque(cases)
    proofs: dict[str, Proof] = {}
    many = min(len(os.sched_getaffinity(0)), 1 + len(cases) // WORTH_A_PROCESS, len(cases))
    provers = [_Prover(orders) for _ in range(many)]
    try:
        while len(proofs) < len(cases):
            for prover in provers:
                if left and prover.gone:
                    prover.start()
                if left and prover.idle:
                    prover.ask(left.popleft())
            for name, proof in _answers(provers):
                proofs[name] = proof
                on_proof(len(cases))
    finally:
        for prover in provers:
            prover.end()
    return proofs


def _answers(provers: Sequence[_Prover]) -> list[tuple[str, Proof]]:
    """Wait for an answer, or for the next that is overdue."""
    busy = {prover.connection: prover for prover in provers if prover.waits}
    due = min(prover.deadline for prover in busy.values())
    ready = wait(list(busy), max(0.0, due - time.monotonic()))
    heard = [busy[connection] for connection in busy if connection in ready]
    late = [p for p in busy.values() if p not in heard and p.deadline <= time.monotonic()]
    answers = [prover.answer() for prover in heard] + [prover.give_up() for prover in late]
    return [answer for answer in answers if answer is not None]


class _Prover:
    """One process, and what it has been asked."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._process: subprocess.Popen[bytes] | None = None
        self._case: Case | None = None
        self._ready = False
        self.connection: Connection[Any, Any]
        self.deadline = 0.0

    @property
    def gone(self) -> bool:
        """Whether there is no process."""
        return self._process is None

    @property
    def idle(self) -> bool:
        """Whether it can be asked."""
        return self._ready and self._case is None

    @property
    def waits(self) -> bool:
        """Whether it is waited for: to be ready, or to answer."""
        return not self.gone and not self.idle

    def start(self) -> None:
        """Start a process and tell it what is to be done."""
        ours, theirs = Pipe()
        with theirs:
            command = sys.executable, "-m", "cutover.prompts.prover", str(theirs.fileno())
            paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=paths)  # noqa: S603 (our own module)
        self.connection = ours
        self._ready = False
        self.deadline = time.monotonic() + START_SECONDS
        orders = self._orders
        ours.send((orders.settings, orders.folder, orders.count))

    def ask(self, case: Case) -> None:
        """Hand it a prompt."""
        self._case = case
        self.deadline = time.monotonic() + self._orders.seconds
        self.connection.send(case)

    def answer(self) -> tuple[str, Proof] | None:
        """Take an answer; None is that it is ready."""
        try:
            proof = self.connection.recv()
        except (EOFError, OSError):
            return self._lost("its process ended: for want of memory, perhaps")
        case, self._case, self._ready = self._case, None, True
        return None if case is None else (case.name, proof)

    def give_up(self) -> tuple[str, Proof]:
        """End what takes too long."""
        return self._lost(f"it took more than {self._orders.seconds:g} s")

    def _lost(self, why: str) -> tuple[str, Proof]:
        """Say of the case at hand that it failed; the next begins anew."""
        case, self._case = self._case, None
        self.end()
        if case is None:
            raise ProverLost
        return case.name, Proof(0, failed=why)

    def end(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self.connection.close()
        self._process.kill()
        self._process.wait(_PATIENCE_S)
        self._process, self._ready = None, False
