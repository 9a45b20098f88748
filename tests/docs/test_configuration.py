"""What docs/configuration.md shows is what the code reads."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from contract.flows import SPECS
from router.config.loader import parse_settings, read_toml
from router.config.reference import generated, main
from router.config.schema import AT_START, FlowDeclaration, RemoteStackSettings, Settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"
NOT_DEFAULT = {"providers", "models", "tools", "version"}


def shown() -> str:
    """Return the file the page shows: every key, then the options of flows."""
    text = PAGE.read_text("utf-8").partition("## Every key")[2].partition("## Flows of your own")[0]
    return "\n".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL))


def test_the_reference_is_what_the_schema_generates(tmp_path: Path) -> None:
    """`python -m router.config.reference docs/configuration.md` writes it anew."""
    page = PAGE.read_text("utf-8")
    assert generated(page) == page
    assert main(["--check", str(PAGE)]) == 0
    stale = tmp_path / "page.md"
    stale.write_text(page.replace("port = 8080", "port = 8081"), "utf-8")
    assert main(["--check", str(stale)]) == 1
    assert main([str(stale)]) == 0
    assert stale.read_text("utf-8") == page


def test_the_page_shows_the_defaults() -> None:
    """Except for a provider, a model and a server of tools, reading it is reading nothing."""
    page, nothing = parse_settings(shown(), "page", SPECS), parse_settings("", "nothing", SPECS)
    for name in Settings.model_fields:
        if name not in NOT_DEFAULT:
            assert getattr(page, name) == getattr(nothing, name), name


def keys(value: object, prefix: str = "") -> set[str]:
    """Return the dotted keys of settings, options and entries of tables included."""
    if isinstance(value, BaseModel):
        pairs = vars(value)
    elif isinstance(value, msgspec.Struct):
        pairs = {name: getattr(value, name) for name in value.__struct_fields__}
    elif isinstance(value, Mapping) and value:
        pairs = {str(name): below for name, below in value.items()}
    else:
        return {prefix}
    return set().union(*(keys(below, f"{prefix}.{name}") for name, below in pairs.items()))


def test_what_is_read_at_start_is_marked_so() -> None:
    """By its section, or by the key's own description; exceptions are named."""
    marked: set[str] = set()
    above = about = ""
    for line in shown().partition("# options")[0].splitlines():
        key, _, comment = line.partition("#")
        if key.startswith("["):
            above, about = key.strip(" []"), comment
            above = above.replace("flows.chat", "flows.*")
            if "At start" in about:
                marked.add(above)
        elif "at start" in comment:
            marked.add(f"{above}.{key.partition(' ')[0]}")
    sections = {due.partition(".")[0] for due in AT_START if "." not in due}
    assert {
        one.partition(".")[0] for one in marked if one.partition(".")[0] in sections
    } == sections
    single = {one for one in marked if one.partition(".")[0] not in sections}
    assert single == {due for due in AT_START if "." in due}


def test_the_page_leaves_no_key_out() -> None:
    """Every key the code knows stands on the page; those of one flow stand for all."""

    def told(table: Mapping[str, Any], prefix: str = "") -> set[str]:
        return {
            key
            for name, below in table.items()
            for key in (
                told(below, f"{prefix}.{name}")
                if isinstance(below, Mapping) and below
                else {f"{prefix}.{name}"}
            )
        }

    known = keys(parse_settings(shown(), "page", SPECS)) - {
        ".version",
        *(f".flows.{name}.declared" for name in SPECS),
    }
    same = {
        f".flows.{name}.{key.rpartition('.')[2]}"
        for name in SPECS
        for key in known
        if re.fullmatch(r"\.flows\.chat\.[a-z_]+", key)
    }
    assert known == told(read_toml(shown(), "page")) | same


def test_the_page_begins_with_an_example() -> None:
    """It is a configuration."""
    (example, *_) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert parse_settings(example, "page", SPECS).flows["chat"].stage == "ramp"


def test_the_page_on_addresses_shows_their_defaults() -> None:
    """And no key of theirs is left out."""
    text = (PAGE.parent / "remote.md").read_text("utf-8")
    (shown,) = re.findall(r"```toml\n(\[stacks.graph\].*?)```", text, re.DOTALL)
    (table,) = read_toml(shown, "page")["stacks"].values()
    address = parse_settings(shown, "page", SPECS).stacks.place("graph")
    assert isinstance(address, RemoteStackSettings)
    assert set(table) == set(RemoteStackSettings.model_fields)
    assert address.model_copy(update={"paths": {}}) == RemoteStackSettings(url=address.url)


def test_the_page_declares_a_flow() -> None:
    """Behind addresses; with every key that declares one."""
    *_, flow = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    stacks = '[stacks]\nlegacy = "http://old/"\n'
    declared = parse_settings(stacks + flow, "page", SPECS).flows["support"].declared
    assert declared is not None
    assert set(read_toml(flow, "page")["flows"]["support"]) == set(FlowDeclaration.model_fields)
    text = (PAGE.parent / "remote.md").read_text("utf-8")
    first, two_formats = re.findall(r"```toml\n([^`]*\[flows.support\].*?)```", text, re.DOTALL)
    assert parse_settings(first, "page", SPECS).flows["support"].stage == "ramp"
    stacks += 'graph = { url = "http://new/", shadow_safe = true }\n'
    assert parse_settings(stacks + two_formats, "page", SPECS).flows["support"].stage == "shadow"
