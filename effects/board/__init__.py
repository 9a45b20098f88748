"""The board routers share: on breakers and on what is spent; Redis's needs its extra."""

from effects.board.memory import MemoryBoard
from effects.board.sqlite import SqliteBoard
from effects.board.store import NOTHING, Board, Note, Phase, Post, Spent

__all__ = [
    "NOTHING",
    "Board",
    "MemoryBoard",
    "Note",
    "Phase",
    "Post",
    "Spent",
    "SqliteBoard",
]
