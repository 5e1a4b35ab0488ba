"""Every setting of a run, a server and a client.

A file declares some sections each (server, run, model, coordination, optimizer, traffic, limits, client);
config has all of them. `settings` reads TOML, environment and --set. presets.py has presets by name,
choices.py choices that are names in a table. Others use config.parse, config.Config and the sections. A new
setting is a field of its section. This package imports nothing: `edgeflock client --help` does not load
pydantic.
"""
