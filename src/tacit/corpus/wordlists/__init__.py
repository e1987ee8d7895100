"""Word lists and grammars of the synthetic corpora, all written for this project; no real person, place or record.

The notation of a template, which ``synthetic.expand`` reads:

- ``{name}``: one of the templates under that name in the grammar, expanded in its turn;
- ``{a|b|c}``: one of the words given;
- ``{120-180}`` or ``{6.5-9.9}``: a number in the range, with as many decimals as the range is written with.
"""
