"""Every setting of a run, a server and a client: declared, a few sections a file (run, model, coordination,
optimizer, traffic, limits, client), put together (config), read from TOML, environment and --set (settings),
presets by name, and choices that are names in a table (choices).

Others use config.parse, config.Config and the sections. A new setting is a field of its section. pydantic is
at home here, so the door opens nothing: `edgeflock client --help` does without.
"""
