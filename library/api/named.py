"""Objects instead of names: settings, the journal and the wire refer to entries of tables by name."""

from collections.abc import Mapping

from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.codecs.sparse import CODINGS as INDEX_CODINGS
from edgeflock.shared.codecs.values import CODINGS as VALUE_CODINGS
from edgeflock.shared.plugins import Table
from edgeflock.shared.settings.choices import Tables

_TABLES: Tables = {
    **CHOICES,
    **{f"{end}.indices": INDEX_CODINGS for end in ("compression", "downlink")},
    **{f"{end}.values": VALUE_CODINGS for end in ("compression", "downlink")},
}

_SECTION_KEYS = {"coordination": "rule", "optimizer": "kind", "defence": "mode"}
"""Section -> the key for an object that replaces the section."""


def name_objects(sections: Mapping[str, object]) -> dict[str, object]:
    """Return `sections` with names instead of objects.

    Each object becomes an entry of its table in this process. A rule may replace `coordination`, an optimizer
    `optimizer`, and a defence `defence`. Raises ConfigError.
    """
    return {name: _name_section(name, section) for name, section in sections.items()}


def _name_section(name: str, section: object) -> object:
    if name in _SECTION_KEYS and not isinstance(section, Mapping | str | int | float | None):
        section = {_SECTION_KEYS[name]: section}
    if not isinstance(section, Mapping):
        return section
    return {key: _name_value(f"{name}.{key}", value) for key, value in section.items()}


def _name_value(key: str, value: object) -> object:
    table = _TABLES.get(key)
    if not isinstance(table, Table) or isinstance(value, str | int | float | None):
        return value
    return table.register(value)
