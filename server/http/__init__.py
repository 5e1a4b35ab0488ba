"""Operators' HTTP: the routes, roles, metrics and page with which they watch and change a run.

Handlers read the application's keys (keys.py). Reading needs a sessions.Host, acting needs the writer.
The package exports no names: a module is imported by itself, so that settings load without Prometheus.
"""
