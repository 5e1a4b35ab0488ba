"""What the handlers of HTTP requests find in the application."""

from aiohttp import web

from edgeflock.server.evaluation import Evaluator
from edgeflock.server.feed import Feed
from edgeflock.server.graphs import GraphStore
from edgeflock.server.roles import Roles
from edgeflock.server.session import Services
from edgeflock.server.watchers import Watchers

SERVICES = web.AppKey("services", Services)
EVALUATOR = web.AppKey("evaluator", Evaluator)
GRAPHS = web.AppKey("graphs", GraphStore)
ROLES = web.AppKey("roles", Roles)
FEED = web.AppKey("feed", Feed)
WATCHERS = web.AppKey("watchers", Watchers)
