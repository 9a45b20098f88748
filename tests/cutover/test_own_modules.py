"""Modules of the working directory: found behind all others, and refused where that hides them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

import router
from cutover.own_modules import PACKAGES, ModuleHidden, append_working_directory, refuse_hidden
from cutover.replay.sides import Side, load_side
from cutover.wiring.stacks import StackNotLoaded
from tests.support.commands import run_command

FLOWS = "FLOWS = {}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of a team's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize("first", ["", "the folder"])
def test_the_working_directory_is_behind_everything_else(here: Path, first: str) -> None:
    """`python -m` puts it first, where its folders would take the place of packages of ours."""
    before = [path for path in sys.path if path not in {"", str(here)}]
    sys.path.insert(0, first and str(here))
    append_working_directory()
    assert sys.path == [*before, str(here)]
    append_working_directory()
    assert sys.path == [*before, str(here)]


def test_where_cutover_itself_is_the_path_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout the folder has the packages themselves."""
    monkeypatch.chdir(Path(router.__file__).parents[1])
    paths = [str(Path.cwd()), *sys.path]
    monkeypatch.setattr(sys, "path", list(paths))
    append_working_directory()
    assert sys.path == paths


@pytest.mark.parametrize("own", ["router.py", "router/__init__.py"])
def test_a_module_with_the_name_of_one_of_ours_is_refused_with_both_paths(
    here: Path, own: str
) -> None:
    """Importing it would find ours, which has no such flows."""
    file = here / own
    file.parent.mkdir(exist_ok=True)
    file.write_text(FLOWS, "utf-8")
    with pytest.raises(ModuleHidden) as hidden:
        refuse_hidden("router.support:FLOWS")
    assert str(Path(router.__file__)) in str(hidden.value)
    assert str(file.parent if own.endswith("__init__.py") else file) in str(hidden.value)
    with pytest.raises(StackNotLoaded, match="hides your own"):
        load_side(Side("graph", "router:FLOWS"))


@pytest.mark.parametrize("own", ["router/__init__.py", "compare.py", "legacy/pipeline.py"])
def test_a_module_beside_the_named_one_is_refused_too(here: Path, own: str) -> None:
    """The named one may import it, and would get ours."""
    file = here / own
    file.parent.mkdir(exist_ok=True)
    for name in (file, here / "own_stack.py"):
        name.write_text(FLOWS, "utf-8")
    hidden = Path(Path(own).parts[0]).stem
    with pytest.raises(ModuleHidden, match=f"module '{hidden}' is"):
        refuse_hidden("own_stack:FLOWS")
    refuse_hidden("msgspec")  # no module of this folder: it imports none of them


def test_every_package_of_ours_is_known() -> None:
    """As the wheel lists them."""
    project = Path(router.__file__).parents[1] / "pyproject.toml"
    wheel = tomllib.loads(project.read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(wheel["packages"]) == sorted(PACKAGES)


def test_other_modules_are_not_refused(here: Path) -> None:
    """One that is there alone, one that is ours alone, one of an unknown name."""
    (here / "own_stack.py").write_text(FLOWS, "utf-8")
    (here / "captures").mkdir()
    for name in (
        "own_stack:FLOWS",
        "legacy:FLOWS",
        "captures:FLOWS",
        "nowhere:X",
        "os:environ",
        "",
    ):
        refuse_hidden(name)


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--port", "0"),
        ("doctor",),
        ("replay", "captures", "--stack", "graph_impl.flows:FLOWS", "--out", "out"),
        ("graph", "chat", "--stack", "graph_impl.flows:FLOWS"),
        ("prompts", "check", "prompts"),
    ],
)
def test_a_command_says_both_paths(here: Path, command: tuple[str, ...]) -> None:
    """At the start: the router would serve something else, or fail with a riddle."""
    (here / "graph_impl").mkdir()
    (here / "graph_impl" / "flows.py").write_text(FLOWS, "utf-8")
    prompts = '[prompts]\nenvironment = "graph_impl.flows:FLOWS"\n'
    (here / "cutover.toml").write_text(f'[stacks]\ngraph = "graph_impl:FLOWS"\n{prompts}', "utf-8")
    (here / "prompts").mkdir()
    (here / "prompts" / "a.j2").write_text("a", "utf-8")
    (here / "captures").mkdir()
    status, said = run_command(*command)
    assert status in {1, 2}
    assert f"hides your own, {str(here / 'graph_impl')!r}: rename yours" in said


def test_a_folder_named_like_a_built_in_stack_does_not_hinder_that_stack(here: Path) -> None:
    """Where no stack is configured, ours are meant."""
    (here / "legacy").mkdir()
    (here / "legacy" / "pipeline.py").write_text("", "utf-8")
    assert "good    stacks.legacy: legacy:FLOWS" in run_command("doctor")[1]
