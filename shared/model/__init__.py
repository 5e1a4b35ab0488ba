"""A model as both ends know it: the layout of theta, losses by name, and torch modules as flat vectors.

layout.Layout is everybody's; torch_module.FlatModule brings torch, so the door opens nothing. Imports errors.
"""
