"""Every setting of a run, a server and a client: declared (config), read from TOML, environment and --set
(settings), presets by name, and choices that are names in a table (choices).

Others use config.parse, config.Config and its sections. A new setting is a field in config.py. pydantic is
at home here, so the door opens nothing: `edgeflock client --help` does without.
"""
