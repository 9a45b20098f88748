"""`pytest --cutover FOLDER`: captures as tests. Without the option, nothing else is imported."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("cutover", "captures as tests")
    group.addoption("--cutover", metavar="FOLDER", help="replay captures, each exchange a test")
    group.addoption("--cutover-stack", metavar="STACK", default="graph", help="what replays")
    group.addoption("--cutover-config", metavar="FILE", help="else cutover.toml, if there is one")


def pytest_configure(config: pytest.Config) -> None:
    """Have the captures collected, where a folder is given."""
    if config.getoption("--cutover"):
        config.pluginmanager.import_plugin("harness.commands.captured_tests")
