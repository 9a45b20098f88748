"""How two runs differ, and whether it matters. Reads records, never code. Imported by module.

`captures` and `recordings` compare whole folders (`compare_captures`), `comparison` one pair
(`Comparer`); `input` finds segments and pairs in captures, `layers` and `causes` make the findings.
`tally` counts them (`Tally`) in `clusters`, `verdict` judges (`verdict_on`) by the `waivers`;
`report` shows what was found, `noise` how much live models differ by themselves.
"""
