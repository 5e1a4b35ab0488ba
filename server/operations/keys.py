"""What the handlers of HTTP requests find in the application."""

from pathlib import Path

from aiohttp import web

from edgeflock.server.doors import Doors
from edgeflock.server.operations.evaluation import Evaluator
from edgeflock.server.operations.feed import Feed
from edgeflock.server.operations.roles import Roles
from edgeflock.server.operations.watchers import Watchers
from edgeflock.server.sessions import Host, Writer
from edgeflock.server.training_graph.served import GraphStore

DOORS = web.AppKey("doors", Doors)
EVALUATOR = web.AppKey("evaluator", Evaluator)
FEED = web.AppKey("feed", Feed)
GRAPHS = web.AppKey("graphs", GraphStore)
ROLES = web.AppKey("roles", Roles)
OFFERED = web.AppKey("offered", Path)
"""There only if devices load the first model."""
HOST = web.AppKey("host", Host)
WATCHERS = web.AppKey("watchers", Watchers)
WRITER = web.AppKey("writer", Writer)
