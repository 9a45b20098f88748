"""Noise in the report: the study and the control check as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compare.noise.wording import (
    METHOD,
    chance_said,
    control_said,
    flags_said,
    judged_said,
    study_said,
)

if TYPE_CHECKING:
    from compare.noise import Judgement, Noise


def noise_markdown(noise: Noise) -> list[str]:
    """Write the noise as lines of Markdown."""
    found = noise.study
    lines = ["#### Noise", "", f"- {study_said(found)}", f"- {control_said(noise.control)}", ""]
    if found.judgements:
        lines += [
            "| flow | measure | leg.–leg. | leg.–graph | difference | p | reading | flagged |",
            "|---|---|--:|--:|--:|--:|---|---|",
            *map(_row, found.judgements),
            "",
        ]
    left_out = [f"{count:,} left out: {reason}." for reason, count in found.left_out.items()]
    method = "\n\n".join((*METHOD, f"The margin is {found.margin:.3g}.", *left_out))
    summary = "<details><summary>How noise was measured</summary>"
    return [*lines, summary, "", method, "", "</details>", ""]


def _row(judged: Judgement) -> str:
    cells = [
        judged.flow,
        judged.measure,
        f"{judged.again:.3f}",
        f"{judged.graph:.3f}",
        f"{judged.difference:+.3f} ({judged.low:+.3f} … {judged.high:+.3f})",
        chance_said(judged),
        judged_said(judged),
        flags_said(judged),
    ]
    return f"| {' | '.join(cells)} |"
