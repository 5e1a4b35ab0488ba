"""A source's access to a server: a password from outside the command line, and TLS.

    password_file=PATH           the password is the first line of a file
    password_env=NAME            it is in an environment variable
    ca=FILE                      the CA of the server's certificate (PEM), if the system lacks it
    certificate=FILE             this device's own certificate (PEM), its key in the same file or in
    certificate_key=FILE

A password may also be in the URI, user:password@host. Then put the URI into a settings file or
EDGEFLOCK_CLIENT__DATA, since other users of the machine can read the command line.
"""

import os
import ssl
from pathlib import Path

from edgeflock.client.data.uri import Uri

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
