import tests.exporting  # noqa: F401
