"""Questions back to the user that a text asks for, as forms for the tool `ask_human`.

| asked for | example | the form's field |
|---|---|---|
| nothing but a yes | `delete my notes, but ask me first`, `先问我` | `go_on`, boolean |
| a number | `ask me how many guests`, `先问我多少人` | `how_many`, number |
| one of several | `ask me which: red or blue`, `先问我哪种：红、蓝还是绿` | `which`, choice |
| anything else | `remind me to call mum: ask me when first`, `先问我什么时候` | `when`, text |

The title is what was said before. Whoever tells of others who ask ("they ask me when") asks for
nothing: only an order counts, at the beginning of a clause.
"""

import re

import msgspec

from loadtests.simulator.language import Language, language_of
from loadtests.simulator.prose import BANK

ASKED = re.compile(
    r"(?:^|[.:;,!?\n–—-])[^\S\n]*(?:(?:please|but|and|so|just|first)\s+)*ask me\b"
    r"(?P<what>[^.:;,!?\n]*)(?::\s*(?P<options>[^.;:!?\n]+))?"
    # Whoever writes 请问我 asks something themselves.
    r"|(?:^|[，。：；！？,.:;!?\n])[^\S\n]*(?:(?:但是?|不过|请|你|再)*先)?问(?:一下|问)?我(?:一下)?"
    r"(?P<what_zh>[^，。：；！？,.:;!?\n]*)(?:[：:]\s*(?P<options_zh>[^。；：！？.;:!?\n]+))?",
    re.IGNORECASE,
)
FIRST = re.compile(r"\bfirst\b|^\s*for\b", re.IGNORECASE)
BETWEEN = re.compile(r"\s*(?:,\s*or\b|,|，|、|\bor\b|还是|或者?)\s*", re.IGNORECASE)
SENTENCE_END = re.compile(r"[.?!。？！\n]")
# A name for the field, its type, and the words that ask for it; the first that fits counts.
KINDS = tuple(
    (name, kind, re.compile(words, re.IGNORECASE))
    for name, kind, words in (
        ("how_many", "number", r"^how (?:many|much)\b|多少|几[个位人只本张]"),
        ("when", "text", r"^when\b|什么时候|几点|哪天"),
        ("where", "text", r"^where\b|哪里|哪儿|在哪$"),
        ("which", "text", r"^which\b|哪"),
        ("who", "text", r"^whom?\b|谁"),
        ("how", "text", r"^how\b|怎么"),
        ("what", "text", r"^(?:what|for)\b|什么"),
    )
)
LONGEST = 80
LONGEST_OPTION = 40


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one field of a form."""

    name: str
    label: str
    type: str
    required: bool
    options: tuple[str, ...] = ()


class Form(msgspec.Struct, frozen=True):
    """What the tool `ask_human` takes."""

    title: str
    fields: tuple[Field]


def forms(text: str) -> list[tuple[int, Form]]:
    """Find every question the user wants to be asked, with its position."""
    found = [(hit.start(), _form(text, hit)) for hit in ASKED.finditer(text)]
    return [(at, form) for at, form in found if form is not None]


def _form(text: str, hit: re.Match[str]) -> Form | None:
    language = language_of(text)
    said = (hit["what"] or hit["what_zh"] or "").strip()
    field = _field(said, hit["options"] or hit["options_zh"] or "", language)
    if field is None:
        return None
    before = SENTENCE_END.split(text[: hit.start()].strip())[-1].strip(" ,，:：;；")
    return Form(_headed(before)[:LONGEST] or field.label, (field,))


def _field(said: str, listed: str, language: Language) -> Field | None:
    """Say what is asked; None where nothing plainly is."""
    asked = FIRST.sub("", said).strip()
    if not asked:
        return Field("go_on", BANK[language].go_on, "boolean", required=True)
    label = _headed(asked)[:LONGEST] + ("？" if language == "zh" else "?")
    options = _options(listed)
    for name, kind, words in KINDS:
        if words.search(said):
            shape = "choice" if options else kind
            return Field(name, label, shape, required=True, options=options)
    return None


def _options(listed: str) -> tuple[str, ...]:
    """Read what there is to choose from; nothing where there is no choice."""
    parts = (part.strip()[:LONGEST_OPTION] for part in BETWEEN.split(listed))
    found = tuple(dict.fromkeys(part for part in parts if part))
    return found if len(found) > 1 else ()


def _headed(text: str) -> str:
    return text[:1].upper() + text[1:]
