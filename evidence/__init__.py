"""Evidence: the statistics behind what reports say; imports nothing of ours but the contract.

`intervals` bound a figure, `tests` and `permutation` ask whether chance gives a difference,
`sequential` asks it at every look, `power` counts the cases that tell. Import each by its path:
scipy below them costs a command its start.
"""
