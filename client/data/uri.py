"""Parses scheme:place?option=value&option=value. Errors show the URI without its secrets.

A source's access to a server: a password from outside the command line, and TLS.

    password_file=PATH           the password is the first line of a file
    password_env=NAME            it is in an environment variable
    ca=FILE                      the CA of the server's certificate (PEM), if the system lacks it
    certificate=FILE             this device's own certificate (PEM), its key in the same file or in
    certificate_key=FILE

A password may also be in the URI, user:password@host. Then put the URI into a settings file or
EDGEFLOCK_CLIENT__DATA, since other users of the machine can read the command line.
"""

import math
import os
import re
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from edgeflock.shared.errors import ConfigError

_SECRET = re.compile("(?i).*(token|secret|password|apikey|api_key|appid|signature)")
"""Options for other servers whose values are hidden."""


@dataclass(frozen=True, slots=True)
class Uri:
    scheme: str
    place: str
    """The text between scheme and options, unchanged."""
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> "Uri":
        scheme, _, rest = text.partition(":")
        place, _, query = rest.partition("?")
        # A nested URI may contain a question mark of its own.
        return cls(scheme, place, dict(parse_qsl(query.replace("?", "&"), keep_blank_values=True)))

    def __str__(self) -> str:
        options = "&".join(
            f"{name}={'...' if _SECRET.fullmatch(name) else value}" for name, value in self.options.items()
        )
        place = re.sub(r"^//[^/]*@", "//", self.place)
        colon = ":" if self.place or self.options else ""  # a path alone has none
        return f"{self.scheme}{colon}{place}{'?' if options else ''}{options}"

    def error(self, reason: str) -> ConfigError:
        return ConfigError(f"data {str(self)!r}: {reason}")

    def split(self, *names: str) -> tuple[dict[str, str], "Uri"]:
        """(the options of these names, the URI without them)."""
        mine = {name: value for name, value in self.options.items() if name in names}
        rest = {name: value for name, value in self.options.items() if name not in names}
        return mine, replace(self, options=rest)

    def check_options(self, *names: str) -> None:
        """Raises ConfigError if there are options of other names."""
        for name in self.options:
            if name not in names:
                known = f"known are {', '.join(names)}" if names else "there are none"
                raise self.error(f"option {name!r} is unknown; {known}")

    def integer(self, name: str) -> int:
        """The option as a whole number; 0 if it is not given."""
        text = self.options.get(name, "0")
        if not (text.isascii() and text.isdecimal()):
            raise self.error(f"{name}={text} must be a whole number")
        return int(text)

    def seconds(self, name: str, default: float, least: float = 0.0) -> float:
        """The option as seconds, `least` or more."""
        text = self.options.get(name)
        try:
            seconds = default if text is None else float(text)
        except ValueError:
            seconds = math.nan
        if not least <= seconds < math.inf:
            raise self.error(f"{name}={text} must be seconds, {least:g} or more")
        return seconds

    def one_of(self, name: str, *choices: str) -> str:
        """The option, one of these; the first, which may be none, if it is not given."""
        value = self.options.get(name, choices[0])
        if value not in choices:
            *others, last = filter(None, choices)
            raise self.error(f"{name}={value} must be {', '.join(others)} or {last}")
        return value

    def broker(self, port: int) -> "Broker":
        """The place //[user[:password]@]host[:port]/topic. `port` is the usual one."""
        try:
            parts = urlsplit(self.place, allow_fragments=False)
            host, port = parts.hostname or "", parts.port or port
        except ValueError as error:
            raise self.error(str(error)) from error
        topic = unquote(parts.path[1:])
        if not (self.place.startswith("//") and host and topic):
            raise self.error(f"must be {self.scheme}://host:port/topic")
        user, password = parts.username, parts.password
        return Broker(host, port, topic, user and unquote(user), password and unquote(password))


@dataclass(frozen=True, slots=True)
class Broker:
    host: str
    port: int
    topic: str
    user: str | None
    password: str | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.topic}"


PASSWORD = ("password_file", "password_env")

TLS = ("ca", "certificate", "certificate_key")


def password(uri: Uri) -> str | None:
    """Return the password that the options name, or None. Raises ConfigError."""
    if all(name in uri.options for name in PASSWORD):
        raise uri.error("has password_file= and password_env=: leave one of them out")
    if (path := uri.options.get("password_file")) is not None:
        try:
            return Path(path).read_text().partition("\n")[0].strip("\r")
        except (OSError, ValueError) as error:
            raise uri.error(f"password_file={path} cannot be read: {error}") from error
    if (name := uri.options.get("password_env")) is not None:
        if name not in os.environ:
            raise uri.error(f"password_env={name}: there is no such variable in the environment")
        return os.environ[name]
    return None


def tls(uri: Uri) -> ssl.SSLContext | None:
    """Return a context that always checks the server's certificate and name; None: the scheme has no TLS.

    Raises ConfigError.
    """
    if not uri.scheme.endswith("s"):
        for name in TLS:
            if name in uri.options:
                raise uri.error(f"{name}= goes with {uri.scheme}s:, which is {uri.scheme}: over TLS")
        return None
    try:
        context = ssl.create_default_context(cafile=uri.options.get("ca"))
        if "certificate" in uri.options:
            # Without a password callback, an encrypted key would be asked for on the terminal.
            context.load_cert_chain(
                uri.options["certificate"], uri.options.get("certificate_key"), password=lambda: b""
            )
    except (OSError, ValueError) as error:
        named = ", ".join(f"{name}={uri.options[name]}" for name in TLS if name in uri.options)
        raise uri.error(f"{named}: {error}") from error
    return context
