"""Ask a router what another was asked, in the same order: `python ask_again.py CAPTURES URL`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from compare.input.damage import Damage
from compare.input.segments import find_segments, read_lines
from contract.records import RunRecord, decode_run
from cutover.flows import flows_at


def asked(captures: str) -> list[RunRecord]:
    """Return the run of every exchange that was served, the oldest first."""
    return sorted(_serving(captures), key=lambda run: run.began)


def _serving(captures: str) -> Iterator[RunRecord]:
    for segment in find_segments(captures):
        for line in read_lines(segment):
            if not isinstance(line, Damage):
                run = decode_run(line.data)
                if run.role == "serving" and run.request is not None:
                    yield run


def ask(run: RunRecord, router: str) -> bool:
    """Ask the same, byte for byte, and read the answer to its end; False where it is refused."""
    assert run.request is not None  # noqa: S101 - `_serving` has looked
    path = run.request.path or flows_at(None)[run.flow].path  # declared ones in ./cutover.toml
    said = {"content-type": "application/json"}
    try:
        with urlopen(Request(router + path, bytes(run.request.body), said)) as answer:  # noqa: S310 - whose URL it is, asks
            answer.read()
    except HTTPError:
        return False
    return True


def main(captures: str, router: str) -> None:
    """Ask everything once."""
    answered = [ask(run, router) for run in asked(captures)]
    refused = f", {answered.count(False)} refused" if False in answered else ""
    print(f"{answered.count(True)} asked again{refused}")


if __name__ == "__main__":
    main(*sys.argv[1:])
