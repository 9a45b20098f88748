"""Judging pairs of answers: where judgements are stored, the page for people, a judge model."""
