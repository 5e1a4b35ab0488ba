"""A model, in the form that both ends use.

That is the layout of theta, losses by name, and torch modules as flat vectors. `calls` has modules and losses
with arguments as text; `fields` has models with several inputs. `start` makes a run's first model from a
seed, if `measuring` finds that possible. layout.Layout needs no torch. torch_module.FlatModule and `modules`
import it, so this package imports nothing. Imports errors.
"""
