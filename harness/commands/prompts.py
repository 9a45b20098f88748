"""`cutover prompts`: Jinja2 templates as LangChain's prompts, proved by rendering both.

A prompt's file is `NAME.txt` in LangChain's f-string format, or `NAME.j2` in its Jinja2 format.
"""

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, TemplateError, nodes
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.meta import find_undeclared_variables
from langchain_core.prompts import PromptTemplate

from cutover.errors import Unusable
from graph_impl.flow import FORMATS, prompt
from legacy.model import PROMPTS

Values = Mapping[str, Any]
Render = Callable[[Values], str]
_TEMPLATES: Final = frozenset({".j2", ".jinja", ".jinja2"})
_UNRENDERED: Final = (
    *(TemplateError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, LookupError, RecursionError),
)
"""What templates raise for parameters that are none of theirs."""
_TEXTS: Final = ("", "plain", "{x} {{ 7*7 }} {% raw %}", " two\nlines \n", "你好 <&>'\"\\", None)
"""What prompts have failed on."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What came of a template: `proofs` renderings were equal; with `problems` it stays."""

    name: str
    kind: str = ""
    text: str = ""
    proofs: int = 0
    problems: Sequence[str] = ()


def templates(source: Path) -> list[Path]:
    """Return a template, or those of a folder; raises `Unusable` where there is none."""
    inside = source.rglob("*") if source.is_dir() else [source] if source.is_file() else []
    if not (found := sorted(one for one in inside if one.suffix in _TEMPLATES)):
        raise Unusable(where=source, reason=f"no template: {', '.join(sorted(_TEMPLATES))}")
    return found


def read_values(path: Path | None) -> list[Values]:
    """Return the parameters to render with: JSON lines, an object each; raises `Unusable`."""
    try:
        lines = path.read_text("utf-8").splitlines() if path else ()
        values = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise Unusable(where=path, reason=str(error)) from error
    if not all(isinstance(one, dict) for one in values):
        raise Unusable(where=path, reason="a line is no JSON object")
    return values


def convert_all(
    source: Path, to: Path | None, values: Sequence[Values] = ()
) -> tuple[list[str], int]:
    """Write a template, or those of a folder; return what to print, and how many stay.

    A file with another content is kept. Without a folder `to` nothing is written.
    """
    root, lines, stay = source if source.is_dir() else source.parent, list[str](), 0
    for path in templates(source):
        made = convert(path, root, values)
        problems = list(made.problems)
        target = (to or root) / f"{made.name}{made.kind}"
        content = made.text.encode()
        if to is not None and not problems:
            if target.exists() and target.read_bytes() != content:
                problems.append(f"{target}: holds another prompt: remove it, or name another --to")
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        stay += bool(problems)
        equal = f"{path} → {target}: {FORMATS.get(made.kind)}, equal in {made.proofs} renderings"
        lines += problems or [equal]
    follows = f"cutover prompts check {root} {to}" if to else "the same with --to FOLDER"
    mend = f"next: mend {stay} of the templates, or write those in Python"
    return [*lines, mend if stay else f"next: {follows}"], stay


def convert(path: Path, root: Path, values: Sequence[Values] = ()) -> Prompt:
    """Return a template as an f-string where that can say it, else in LangChain's Jinja2 format."""
    name = path.relative_to(root).with_suffix("").as_posix()
    environment = _environment(root)
    try:
        source = path.read_text("utf-8")
        tree = environment.parse(source)
        if problems := [f"{path}:{line}: {what}" for line, what in _unsayable(tree, environment)]:
            return Prompt(name, problems=problems)
        text = _as_fstring(tree)
        kind, text = (".j2", source) if text is None else (".txt", text)
        legacy, graph = environment.from_string(source).render, _prompt(text, kind)
    except (TemplateError, SyntaxError, OSError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 0
        return Prompt(name, problems=[f"{path}:{line}: no template: {error}"])
    found = compare(name, legacy, graph, values or samples(tree))
    return Prompt(name, kind, text, found.proofs, found.problems)


def _environment(folder: Path) -> Environment:
    # Prompts are no HTML, and escaping would change them.
    return Environment(loader=FileSystemLoader(folder), autoescape=False)  # noqa: S701


def _prompt(text: str, kind: str) -> Render:
    made = PromptTemplate.from_template(text, template_format=FORMATS[kind])
    return lambda values: made.format(**values)


def _unsayable(tree: nodes.Template, environment: Environment) -> Iterator[tuple[int, str]]:
    """Yield the lines that neither format can say, each with what to do."""
    for other in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        yield other.lineno, "LangChain loads no other template: put its text here"
    for used in tree.find_all((nodes.Filter, nodes.Test)):
        known = environment.filters if isinstance(used, nodes.Filter) else environment.tests
        if used.name not in known:
            what = f"LangChain has no {type(used).__name__.lower()} {used.name!r}"
            yield used.lineno, f"{what}: apply it in Python, and pass what comes of it"


def _as_fstring(tree: nodes.Template) -> str | None:
    """Return a template of texts and names in f-string format; None for any other."""
    text = ""
    for part in tree.body:
        if not isinstance(part, nodes.Output):
            return None
        for one in part.nodes:
            match one:
                case nodes.TemplateData(data=data):
                    text += data.replace("{", "{{").replace("}", "}}")
                case nodes.Name(name=name) if name not in DEFAULT_NAMESPACE:
                    text += f"{{{name}}}"
                case _:
                    return None
    return text


def samples(tree: nodes.Template) -> list[Values]:
    """Return parameters for all names of a template: each text for all, and each name left empty.

    What a template loops over is a list of texts.
    """
    names = sorted(find_undeclared_variables(tree))
    looped = {one.iter.name for one in tree.find_all(nodes.For) if isinstance(one.iter, nodes.Name)}

    def value(name: str, text: str | None) -> Any:
        named = f"{name}: {text}" if text else text
        return ([named, name] if text else []) if name in looped else named

    full = {name: value(name, _TEXTS[1]) for name in names}
    return [
        *({name: value(name, text) for name in names} for text in _TEXTS),
        *({**full, name: value(name, "")} for name in names),
    ]


def compare(name: str, legacy: Render, graph: Render, values: Iterable[Values]) -> Prompt:
    """Return what comes of rendering both with the same parameters, where legacy takes them."""
    proofs = 0
    for one in values:
        try:
            due = legacy(one)
        except _UNRENDERED:
            continue
        try:
            made = graph(one)
        except Exception as error:  # noqa: BLE001 - whatever it is, the prompt cannot be used
            made = f"{type(error).__name__}: {error}"
        if made != due:
            return Prompt(name, proofs=proofs, problems=[_difference(name, one, due, made)])
        proofs += 1
    unproved = [f"{name}: no parameters to render it with: name --values FILE"]
    return Prompt(name, proofs=proofs, problems=() if proofs else unproved)


def _difference(name: str, values: Values, due: str, made: str) -> str:
    lines = enumerate(zip_longest(due.split("\n"), made.split("\n")), 1)
    number, (old, new) = next((at, pair) for at, pair in lines if pair[0] != pair[1])
    shown = ", ".join(f"{key}={value!r}" for key, value in values.items())
    return f"{name}, line {number}: Jinja2 has {old!r}, LangChain {new!r}; for {shown}"


def check(folder: Path | None, prompts: str, values: Sequence[Values] = ()) -> list[Prompt]:
    """Compare a folder of templates with prompts of their names: in a folder, or in a module.

    Without a folder those of the built-in flows, as their stacks fill them in. Raises `Unusable`.
    """
    folder = folder or PROMPTS
    found, environment = [], _environment(folder)
    for path in templates(folder):
        name = path.relative_to(folder).with_suffix("").as_posix()
        try:
            graph = _found(prompts, name) if prompts else partial(prompt, name)
            tree = environment.parse(path.read_text("utf-8"))
            legacy = environment.get_template(path.relative_to(folder).as_posix()).render
        except (TemplateError, Unusable, ValueError) as error:
            found.append(Prompt(name, problems=[f"{name}: {error}"]))
        else:
            found.append(compare(name, legacy, graph, values or samples(tree)))
    return found


def _found(prompts: str, name: str) -> Render:
    """Return a prompt of a folder, or of a module by its attribute's name; raises `Unusable`."""
    if Path(prompts).is_dir():
        for kind in FORMATS:
            if (path := Path(prompts, name + kind)).is_file():
                return _prompt(path.read_text("utf-8").removesuffix("\n"), kind)
        raise Unusable(where=prompts, reason=f"no {name}.txt and no {name}.j2")
    try:
        made = getattr(importlib.import_module(prompts), name.replace("/", "_"))
    except (ImportError, AttributeError) as error:
        raise Unusable(where=prompts, reason=f"no folder, and {error}") from error
    return lambda values: str(made.format(**values))
