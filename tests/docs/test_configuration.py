"""What docs/configuration.md shows is what the code reads."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cutover.flows import SPECS
from router.config import DECLARATION_KEYS, RemoteStackSettings, Settings, parse_settings, read_toml

PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"
NOT_DEFAULT = {"providers", "models", "tools", "version"}


def shown() -> str:
    """Give the file the page shows."""
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_page_shows_the_defaults() -> None:
    """Except for a provider, a model and a server of tools, reading it is reading nothing."""
    page, nothing = parse_settings(shown(), "page", SPECS), parse_settings("", "nothing", SPECS)
    for name in Settings.__struct_fields__:
        if name not in NOT_DEFAULT:
            assert getattr(page, name) == getattr(nothing, name), name


def keys(value: object, prefix: str = "") -> set[str]:
    """Give the dotted keys of a struct, options and entries of tables included."""
    if isinstance(value, msgspec.Struct):
        pairs = {name: getattr(value, name) for name in value.__struct_fields__}
    elif isinstance(value, Mapping) and value:
        pairs = {str(name): below for name, below in value.items()}
    else:
        return {prefix}
    return set().union(*(keys(below, f"{prefix}.{name}") for name, below in pairs.items()))


def test_the_page_leaves_no_key_out() -> None:
    """Every key the code knows stands on the page."""

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
    assert known == told(read_toml(shown(), "page"))


def test_the_page_on_addresses_shows_their_defaults() -> None:
    """And no key of theirs is left out."""
    text = (PAGE.parent / "remote.md").read_text("utf-8")
    (shown,) = re.findall(r"```toml\n(\[stacks.graph\].*?)```", text, re.DOTALL)
    (table,) = read_toml(shown, "page")["stacks"].values()
    address = parse_settings(shown, "page", SPECS).stacks.place("graph")
    assert isinstance(address, RemoteStackSettings)
    assert set(table) == set(RemoteStackSettings.__struct_fields__)
    assert msgspec.structs.replace(address, paths={}) == RemoteStackSettings(url=address.url)


def test_the_page_declares_a_flow() -> None:
    """Behind addresses; with every key that declares one."""
    _, flow = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    stacks = '[stacks]\nlegacy = "http://old/"\n'
    declared = parse_settings(stacks + flow, "page", SPECS).flows["support"].declared
    assert declared is not None
    assert set(read_toml(flow, "page")["flows"]["support"]) == set(DECLARATION_KEYS)
    text = (PAGE.parent / "remote.md").read_text("utf-8")
    (shown,) = re.findall(r"```toml\n([^`]*\[flows.support\].*?)```", text, re.DOTALL)
    assert parse_settings(shown, "page", SPECS).flows["support"].stage == "ramp"
