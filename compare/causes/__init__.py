"""Causes: one cause is one finding; what follows from another finding says `after` which.

`settle` applies a few rules, each a sentence: what a run that ended lacks follows from its end
(`endings`), what cannot be read from the frame that broke the grammar (`unread`), and what shows a
known change again from where it was first (`recurrences`). Where a shadow asked the model itself,
what may follow from its answers is noise (`live_answers`).
"""
