"""Recognition of the stream formats of unknown services, from one answer of each.

Pure: an answer's head and its body with its timing go in, a dialect with evidence and doubts comes
out. `recognition` reads with the built-in dialects, `proposal` makes one for any other stream from
its `leaves` and `texts`; `answers` says why an answer is no stream, `agreement` whether two answers
are streams of one dialect.
"""

from cutover.recognition.agreement import Agreement, agree
from cutover.recognition.answers import Answer, End, NoStream
from cutover.recognition.recognition import Recognised, read_as, recognise

__all__ = [
    "Agreement",
    "Answer",
    "End",
    "NoStream",
    "Recognised",
    "agree",
    "read_as",
    "recognise",
]
