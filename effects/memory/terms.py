"""Terms: what texts and queries are cut into, so that Chinese is found without a dictionary.

Runs of Chinese, Japanese or Korean characters become their characters and overlapping pairs
(`喜欢茶` gives 喜, 欢, 茶, 喜欢, 欢茶); other letters and digits become lower-case words. A query
of such a run uses the pairs alone: they are what tells texts apart.
"""

from __future__ import annotations

import re
import unicodedata

# Ideographs with their extensions, kana, hangul: scripts written without spaces between words.
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(rf"([{_DENSE}]+)|([^\W_{_DENSE}]+)")

MOST_OF_A_QUERY = 200


def of_text(text: str) -> list[str]:
    """Cut a text that is to be found."""
    terms: list[str] = []
    for dense, word in _RUNS.findall(_plain(text)):
        terms += [word] if word else [*dense, *_pairs(dense)]
    return terms


def of_query(text: str) -> list[str]:
    """Cut a query, each term once, the first two hundred of them."""
    terms: dict[str, None] = {}
    for dense, word in _RUNS.findall(_plain(text)):
        terms.update(dict.fromkeys([word] if word else _pairs(dense) or [dense]))
    return list(terms)[:MOST_OF_A_QUERY]


def _plain(text: str) -> str:
    """Make equal what looks equal: full-width letters, ligatures, upper case."""
    return unicodedata.normalize("NFKC", text).casefold()


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]
