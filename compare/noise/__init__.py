"""Noise: how much live model calls differ by themselves, and whether the graph differs by more."""

from compare.noise.control import ControlCheck, ControlChecker
from compare.noise.messages import LegacyAgain, Noise, NoiseReader, NoiseTally, read_noise
from compare.noise.study import Judgement, MeasuredMessage, Study, study_of

__all__ = [
    "ControlCheck",
    "ControlChecker",
    "Judgement",
    "LegacyAgain",
    "MeasuredMessage",
    "Noise",
    "NoiseReader",
    "NoiseTally",
    "Study",
    "read_noise",
    "study_of",
]
