"""Rules: what a team has decided not to count as a difference."""

from compare.rules.ruling import Ruling
from compare.rules.table import NO_RULES, Rule, Rules, read_rules, rules_of

__all__ = ["NO_RULES", "Rule", "Rules", "Ruling", "read_rules", "rules_of"]
