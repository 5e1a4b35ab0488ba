"""Selection of the gradient entries to send: the largest (largest) or the significant ones (significance).

`adaptive` sends all of them if a selection loses too much; `feedback` keeps the rest. The functions are pure;
a new rule is a new file. Imports model.
"""
