"""Whether the server in this container answers; an exit code for Docker's HEALTHCHECK.

HEALTH_URL names another address, e.g. http://127.0.0.1:8470/livez behind a proxy.
"""

import os
import ssl
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

URL = "https://127.0.0.1:8470/livez"


def main() -> None:
    url = os.environ.get("HEALTH_URL", URL)
    certificate = Path(os.environ["EDGEFLOCK_SERVER__DIRECTORY"], "certificate.pem")
    own = certificate if url.startswith("https:") and certificate.exists() else None
    try:
        with urlopen(url, timeout=5, context=ssl.create_default_context(cafile=own)) as answer:
            sys.exit(answer.status != 200)
    except (URLError, OSError) as error:
        sys.exit(f"{url}: {error}")


if __name__ == "__main__":
    main()
