"""What the handlers of HTTP requests find in the application."""

from aiohttp import web

from edgeflock.server.evaluation import Evaluator
from edgeflock.server.feed import Feed
from edgeflock.server.graphs import GraphStore
from edgeflock.server.roles import Roles
from edgeflock.server.view import RunView
from edgeflock.server.watchers import Watchers
from edgeflock.server.writer import Writer

EVALUATOR = web.AppKey("evaluator", Evaluator)
FEED = web.AppKey("feed", Feed)
GRAPHS = web.AppKey("graphs", GraphStore)
ROLES = web.AppKey("roles", Roles)
VIEW = web.AppKey("view", RunView)
WATCHERS = web.AppKey("watchers", Watchers)
WRITER = web.AppKey("writer", Writer)
