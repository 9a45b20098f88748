"""Transcripts: what a page says is typed into a shell, and what it says comes then."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PROMPT = "$ "
METHODS = {False: "GET", True: "POST"}


@dataclass(frozen=True, slots=True)
class Typed:
    """A command, and what is shown below it."""

    command: str
    shown: str

    @property
    def words(self) -> list[str]:
        """The command's words, without its comment; what ends a command unquoted is a word."""
        lexer = shlex.shlex(self.command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        return list(lexer)


@dataclass(frozen=True, slots=True)
class Curl:
    """What a `curl` asks, and whether it shows the headers."""

    method: str
    path: str
    data: bytes | None
    headers: Mapping[str, str]
    verbose: bool


def blocks(page: Path, heading: str, language: str) -> list[str]:
    """Return the blocks of a language below a heading, to the next one of any level."""
    (section,) = re.findall(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)",
        page.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def fenced(text: str) -> list[tuple[str, str]]:
    """Return all blocks of a text in their order, with their languages."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def typed(block: str) -> Iterator[Typed]:
    """Read a block: each command with all that is shown before the next."""
    for part in re.split(rf"^{re.escape(PROMPT)}", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield Typed(command, shown)


def curl(one: Typed, variables: Mapping[str, str]) -> Curl:
    """Read a command line of `curl`, variables filled in; unknown options are refused."""
    words = [re.sub(r"\$(\w+)", lambda hit: variables[hit[1]], word) for word in one.words[1:]]
    data, headers, url, verbose = None, {}, "", False
    rest = iter(words)
    for word in rest:
        match word:
            case "-d":
                data = next(rest).encode()
            case "-H":
                name, _, value = next(rest).partition(": ")
                headers[name] = value
            case "-N" | "-iN":
                verbose = word == "-iN"
            case _:
                assert not word.startswith("-"), word
                url = word
    _, slash, path = url.partition("/")
    return Curl(METHODS[data is not None], slash + path, data, headers, verbose)


def pattern(shown: str) -> re.Pattern[str]:
    """Make a pattern of what is shown: `…` is anything, on a line of its own any lines."""
    made = re.escape(shown.rstrip("\n"))
    made = made.replace("\\\n…\\\n\\\n", "\n(?:.*\n)*?").replace("\\\n…\\\n", "\n(?:.*\n)*?")
    return re.compile(made.replace("…", ".*?") + r"\n*")
