"""Evidence: statistics behind what reports say, and their pages; knows the contract alone.

`intervals` bound a figure, `tests` and `permutation` ask whether chance gives a difference,
`sequential` asks it at every look, `power` counts the cases that tell, `pages` is the design of
all reports. Import each by its path: scipy below them costs a command its start.
"""
