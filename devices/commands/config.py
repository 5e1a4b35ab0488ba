"""`edgeflock config`: every setting with its default."""


def config() -> None:
    """Print every setting with its default, as a TOML file."""
    from edgeflock.shared.settings.config import describe

    print(describe())
