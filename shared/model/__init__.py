"""A model as both ends know it: the layout of theta, losses by name, torch modules as flat vectors; modules
and losses with arguments as text (calls), inputs that are several (fields); and what a run starts from as a
function of a seed (start), where that can be (measuring).

layout.Layout is everybody's; torch_module.FlatModule brings torch, so the door opens nothing. Imports errors.
"""
