"""Captures of an earlier version, and what that version made of them.

`python tests/data/earlier_captures.py CHECKOUT` writes `expected.json` with the code of a checkout;
without one, `clusters.json` with the code beside it: the ids of causes as they are now.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zstandard

FOLDER = Path(__file__).parent / "captures-3245704"
CAPTURES = FOLDER / "exchanges"
EXPECTED = FOLDER / "expected.json"
CLUSTERS = FOLDER / "clusters.json"

Json = dict[str, Any]


Command = Callable[..., int]
"""Runs a command of `cutover`, its words given, and returns the exit status."""


def command_of(checkout: Path, folder: Path) -> Command:
    """Return the command line of a checkout, run inside a folder."""

    def run(*arguments: str) -> int:
        return subprocess.run(
            (sys.executable, "-m", "cutover", *arguments),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode

    return run


def lines(folder: Path) -> Iterator[Json]:
    """Yield every run below a folder."""
    for path in sorted(folder.rglob("*.jsonl.zst")):
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            yield from map(json.loads, reader.read().splitlines())


def spoil(captures: Path, out: Path) -> None:
    """Write captures whose shadows differ, each ninth in the same way."""
    with out.open("w", encoding="utf-8") as file:
        shadows = 0
        for run in lines(captures):
            if run["role"] == "shadow":
                _spoil(run, shadows % 9)
                shadows += 1
            file.write(json.dumps(run, ensure_ascii=False) + "\n")


def _spoil(run: Json, how: int) -> None:
    frames, plays = run.get("frames", []), run.get("plays", [])
    match how:
        case 1 if frames:
            del frames[len(frames) // 2]
        case 2 if frames:
            frames.append(frames[-1])
        case 3:
            text = '"content":"'
            run["frames"] = [(at, frame.replace(text, f"{text}!")) for at, frame in frames]
        case 4:
            run |= {"outcome": "failed", "error": {"code": "stack_error"}}
        case 5 if plays:
            plays.pop()
        case 6:
            for play in plays:
                if play["port"] in {"model", "tools"}:
                    play["args"] = {"another": 1}
        case 7 if frames:
            frames[:2] = reversed(frames[:2])
        case 8:
            run["frames"] = [(at + 1_000, frame) for at, frame in frames]
        case _:
            pass


def diffed(captures: Path, place: Path, run: Command) -> Json:
    """Compare captures: what the report counts, and its clusters."""
    status = run("diff", str(captures), "-o", str(place))
    report = json.loads((place / "report.json").read_text("utf-8"))
    counted = ("id", "flow", "layer", "kind", "path", "exchanges", "findings")
    clusters = [{name: one[name] for name in counted} for one in report["clusters"]]
    ordered = sorted(clusters, key=lambda one: (one["flow"], one["id"]))
    return {"exit": status, "counts": report["counts"], "clusters": ordered}


def replayed(stack: str, place: Path, run: Command) -> dict[str, str]:
    """Replay the captures on a stack: a digest of every run, by `exchange stack`."""
    options = ("--stack", stack, "-o", str(place), "--processes", "0", "--no-report")
    run("replay", str(CAPTURES), *options)
    return {
        f"{line['exchange']} {line['stack']}": digest(line)
        for line in lines(place / "segments")
        if line["role"] == "replay"
    }


def digest(run: Json) -> str:
    """Digest what a run sent, how it ended, and what it asked of the world.

    Fields that the version of the captures did not know are left out.
    """
    seen = {name: run.get(name) for name in ("frames", "outcome", "error", "plays")}
    seen["plays"] = [
        {name: play[name] for name in play if name != "frames"} for play in run.get("plays", [])
    ] or None
    if error := run.get("error"):
        seen["error"] = {name: error[name] for name in ("code", "kind") if name in error}
    return sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


def expectations(checkout: Path) -> Json:
    """Collect what a checkout makes of the captures."""
    with TemporaryDirectory() as name:
        place = Path(name)
        run = command_of(checkout, place)
        spoil(CAPTURES, place / "spoilt.jsonl")
        return {
            "equal": diffed(CAPTURES, place / "equal", run),
            "spoilt": diffed(place / "spoilt.jsonl", place / "spoilt", run),
            "replays": {
                stack: replayed(stack, place / stack, run) for stack in ("legacy", "graph")
            },
        }


def write(found: Any, path: Path) -> None:
    """Write an expectation, as JSON a person can read."""
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main(*checkouts: str) -> None:
    """Write what is expected: of a checkout all, of the code beside this file the ids."""
    if checkouts:
        write(expectations(Path(checkouts[0]).resolve()), EXPECTED)
        return
    with TemporaryDirectory() as name:
        place = Path(name)
        spoil(CAPTURES, place / "spoilt.jsonl")
        run = command_of(Path.cwd(), place)
        found = diffed(place / "spoilt.jsonl", place / "spoilt", run)
        write(found["clusters"], CLUSTERS)


if __name__ == "__main__":
    main(*sys.argv[1:])
