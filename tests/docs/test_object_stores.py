"""What docs/object-stores.md says of permissions, keys and costs."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec

from contract.flows import SPECS
from router.capture.objects import HELD_OBJECTS
from router.config.loader import parse_settings
from router.config.schema import CaptureSettings

PAGE = (Path(__file__).parents[2] / "docs" / "object-stores.md").read_text("utf-8")
DOCTOR = Path(__file__).parents[2] / "cutover" / "doctor.py"
DEFAULTS = CaptureSettings()


def test_the_policy_allows_what_the_doctor_asks_for() -> None:
    """And no more than the question whether versions are kept."""
    (policy,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    statements = msgspec.json.decode(policy)["Statement"]
    allowed = {action for statement in statements for action in statement["Action"]}
    asked = set(re.findall(r'"(s3:\w+)"', DOCTOR.read_text("utf-8")))
    assert allowed == asked | {"s3:GetBucketVersioning"}


def test_the_configuration_that_is_shown_is_taken() -> None:
    """With the defaults that the page names."""
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert parse_settings(shown, "page", SPECS).captures.keep_days == 30
    assert f"`object_bytes` ({DEFAULTS.object_bytes >> 20} MiB)" in PAGE
    assert f"`object_seconds` old ({DEFAULTS.object_seconds:g})" in PAGE
    assert HELD_OBJECTS == 4
    assert "four times `object_bytes` are held" in PAGE


def test_the_objects_of_a_million_exchanges_are_reckoned() -> None:
    """By the bytes of one that the bench measured, and by age."""
    (measured,) = re.findall(r"take (\d+)\s+bytes", PAGE)
    by_size = re.findall(r"^\| (\d{6,}) \(.*\) \| ([\d ]+) \|$", PAGE, re.MULTILINE)
    assert len(by_size) == 4
    for size, objects in by_size:
        assert int(objects.replace(" ", "")) == math.ceil(int(measured) * 1e6 / int(size))
    by_age = re.findall(r"^\| (1|10|100) \| ([\d ]+) \|$", PAGE, re.MULTILINE)
    assert len(by_age) == 3
    for rate, objects in by_age:
        seconds = DEFAULTS.object_seconds
        assert int(objects.replace(" ", "")) == math.ceil(1e6 / int(rate) / seconds)
        assert int(measured) * int(rate) * seconds < DEFAULTS.object_bytes, "not full by then"
