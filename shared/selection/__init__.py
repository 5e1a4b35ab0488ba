"""What of a gradient to send: the largest entries (largest) or the significant ones (significance), all of it
where that loses too much (adaptive), and what to do with the rest (feedback). Pure functions; a new rule is a
file. Imports model.
"""
