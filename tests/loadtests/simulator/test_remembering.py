"""What the simulated model reads in a picture, and what of it may be remembered."""

from __future__ import annotations

import msgspec
import pytest

from contract.flows.companion import CompanionOptions
from loadtests.simulator import ChatCompletionRequest, Profile, script_for
from loadtests.simulator.prose import PHRASES, Language
from rules.memories import confident_facts
from tests.loadtests.simulator.asking import asked, text
from tests.pictures import JPEG, PNG, WEBP, url

SCENES = [(language, scene) for language, bank in PHRASES.items() for scene in bank.scenes]
JSON = {"type": "json_object"}


@pytest.mark.parametrize(("language", "scene"), SCENES)
def test_every_picture_tells_something_to_remember(language: Language, scene: str) -> None:
    """Sure enough to be proposed to the user."""
    script = script_for(asked(scene, response_format=JSON), Profile())
    found = confident_facts(text(script), CompanionOptions().least_confidence)
    assert len(found) == 1, language


@pytest.mark.parametrize(
    ("scene", "fact"),
    [
        (PHRASES["en"].scenes[0], "call Ana on Friday"),
        (PHRASES["zh"].scenes[0], "周五给安娜打电话"),
    ],
)
def test_what_is_written_in_a_picture_goes_before_what_it_shows(scene: str, fact: str) -> None:
    """As the words between quotation marks; the notebook itself is no fact."""
    (found,) = confident_facts(text(script_for(asked(scene, response_format=JSON), Profile())), 0.3)
    assert found.text == fact


@pytest.mark.parametrize("image", [url(PNG), url(JPEG, "image/jpeg"), url(WEBP, "image/webp")])
def test_pictures_are_read_as_one_of_the_scenes(image: str) -> None:
    """Whatever their type."""
    shows = [{"type": "text", "text": "[图片]"}, {"type": "image_url", "image_url": {"url": image}}]
    body = {"model": "sim-chat", "stream": True, "messages": [{"role": "user", "content": shows}]}
    read = text(script_for(msgspec.convert(body, ChatCompletionRequest), Profile()))
    assert any(read.endswith(scene) for scene in PHRASES["zh"].scenes)
