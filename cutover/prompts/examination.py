"""Examination of prompts in processes with limits: each is judged and, where asked, proved.

A template that takes too long or too much memory ends its process and nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.context import BaseContext
from pathlib import Path
from threading import local
from typing import Any

import msgspec
from jinja2 import Environment, StrictUndefined, Undefined

from contract.errors import MissingExtra
from cutover.prompts.environment import environment_of
from cutover.prompts.folder import PromptFile, prompts_in
from cutover.prompts.judgement import JudgedTemplate, Label, PromptProof, ProofCase, judge
from cutover.prompts.template import reason
from router.config.schema import PromptSettings

try:
    import resource
except ImportError:  # pragma: no cover (Windows has none)
    resource = None  # type: ignore[assignment]

SECONDS = 10.0
_START_SECONDS = 60.0
_BUSY = 10
"""How many times its limit of processor time a prompt may take where the machine is busy."""
_MEMORY_BYTES = 2 << 30
_PROMPTS_PER_PROCESS = 50
_LABELS: tuple[Label, ...] = ("converts", "converts with care", "stays")


@dataclass(frozen=True, slots=True)
class ExaminationOrder:
    """What the prompts of an examination share; `seconds` of a processor are one prompt's."""

    settings: PromptSettings
    folder: Path
    prove: bool = False
    seconds: float = SECONDS


class ExaminedPrompt(msgspec.Struct, frozen=True):
    """One prompt with its judged templates; `content` is the text it converts into.

    `proof` is None where none was ordered, or where the prompt stays. `jinja2_us` are the
    microseconds of a call with `template_format="jinja2"`, where that renders equally.
    """

    source: PromptFile
    templates: tuple[JudgedTemplate, ...]
    content: str
    proof: PromptProof | None = None
    jinja2_us: float | None = None

    @property
    def label(self) -> Label:
        """The label of its worst template."""
        return max((part.label for part in self.templates), key=_LABELS.index, default="converts")

    @property
    def fit(self) -> bool:
        """Whether it converts, and no proof says otherwise."""
        return self.label != "stays" and (self.proof is None or self.proof.holds)


def examine_folder(
    order: ExaminationOrder, on_prompt: Callable[[int], None]
) -> tuple[ExaminedPrompt, ...]:
    """Examine the prompts of a folder; `on_prompt(total)` is called once for each.

    Raises `FolderRefused`, `ImportRefused`, `MissingExtra`.
    """
    if order.prove and find_spec("hypothesis") is None:
        what = "proof of prompts (--no-prove goes without)"
        raise MissingExtra(what, "prompts")
    environment_of(order.settings, order.folder)  # refused here, not in every process
    sources = prompts_in(order.folder, order.settings)
    cores = len(os.sched_getaffinity(0))
    many = max(1, min(cores, len(sources) // _PROMPTS_PER_PROCESS))
    workers = local()
    with ThreadPoolExecutor(many) as threads:
        try:
            futures = {
                threads.submit(_examine_elsewhere, workers, source, order): source.name
                for source in sources
            }
            found = {}
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                on_prompt(len(sources))
        finally:
            threads.shutdown(cancel_futures=True)
    return tuple(found[source.name] for source in sources)


def examine(
    environment: Environment, source: PromptFile, order: ExaminationOrder
) -> ExaminedPrompt:
    """Judge one prompt, and prove it if so ordered."""
    templates = tuple(judge(environment, t, order.settings.encoding) for t in source.templates)
    found = ExaminedPrompt(source, templates, _content(source, templates))
    if not order.prove:
        return found
    if found.label == "stays":
        cost = None if source.parts else _prover().jinja2_format_cost(environment, source.name)
        return msgspec.structs.replace(found, jinja2_us=cost)
    case = ProofCase(
        source.name,
        source.templates,
        {name: path for part in templates for name, path in part.paths.items()},
        found.content,
        bool(source.parts),
        source.placeholders,
    )
    return msgspec.structs.replace(found, proof=_prover().proved(environment, case))


def _prover() -> Any:
    """Import the module that proves, which only a proof waits for."""
    return import_module("cutover.prompts.proof")


def silent_about_missing(settings: PromptSettings, folder: Path) -> bool:
    """Whether the environment writes nothing for a variable that is not passed."""
    undefined: type[Undefined] = environment_of(settings, folder).undefined
    return not issubclass(undefined, StrictUndefined)


def _content(source: PromptFile, templates: Sequence[JudgedTemplate]) -> str:
    """Return the file a prompt becomes: an f-string, or the messages of a ChatPromptTemplate."""
    texts = {part.name: part.text for part in templates}
    if not source.parts:
        return texts[source.name]
    messages = [
        {"role": part.role, "content": f"{{{part.placeholder}}}"}
        if part.placeholder
        else {"role": part.role, "content": texts[part.template]}
        for part in source.parts
    ]
    return msgspec.json.format(msgspec.json.encode(messages), indent=2).decode() + "\n"


# One process a thread: when it dies, the prompt that ended it is known.


def _examine_elsewhere(
    workers: local, source: PromptFile, order: ExaminationOrder
) -> ExaminedPrompt:
    pool: ProcessPoolExecutor | None = getattr(workers, "pool", None)
    if pool is None:
        pool = workers.pool = ProcessPoolExecutor(1, _context(), _start, (order,))
        pool.submit(_ready).result(_START_SECONDS)
    try:
        return msgspec.msgpack.decode(pool.submit(_examined, source).result(), type=ExaminedPrompt)
    except BrokenProcessPool:
        workers.pool = None
        return _ended(source, order)


def _context() -> BaseContext:
    """Return a way to start processes that is safe beside threads; a fork server starts faster."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _ended(source: PromptFile, order: ExaminationOrder) -> ExaminedPrompt:
    detail = f"it took more than {order.seconds:g} s or {_MEMORY_BYTES >> 30} GiB"
    name = source.templates[0] if source.templates else source.name
    why = reason(name, 1, "size", detail)
    stays = JudgedTemplate(name, "stays", (), "", {}, (why,), ())
    return ExaminedPrompt(source, (stays,), "")


_order: ExaminationOrder
_environment: Environment


def _start(order: ExaminationOrder) -> None:
    global _order, _environment
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    _order, _environment = order, environment_of(order.settings, order.folder)
    if order.prove:
        _prover()  # its import must not count against a prompt


def _ready() -> None:
    """Return once the process has started."""


def _examined(source: PromptFile) -> bytes:
    # The signals' default action ends the process, also in the middle of a computation in C.
    signal.setitimer(signal.ITIMER_PROF, _order.seconds)
    signal.setitimer(signal.ITIMER_REAL, _order.seconds * _BUSY)
    try:
        return msgspec.msgpack.encode(examine(_environment, source, _order))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
