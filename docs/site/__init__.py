"""Pages of the documentation that are made of the code: each a pure function to Markdown.

    commands    every command with its arguments and options, also as manual pages
    settings    every setting with its type, bounds, default and meaning
    rest        every route of the server's HTTP
    errors      every refusal with its code and status
    claims      every section with figures, and where these are from

`python -m docs.site` writes those of docs/reference, and docs/results/index.md; a test says when they are not
what the code is.
"""

from docs.site import commands, errors, rest, settings

PAGES = {"commands": commands.page, "settings": settings.page, "rest": rest.page, "errors": errors.page}
"""Name of the file in docs/reference -> what makes it."""
