"""The keys under which handlers find the server's parts, and the connection of a request."""

from aiohttp import web

from edgeflock.server.connections import ConnectionLimits, GuardedConnection
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.http.model_exports import ModelExports
from edgeflock.server.http.watchers import Watchers
from edgeflock.server.identity import Audit, Authority, Logins, Register
from edgeflock.server.monitoring.feed import Feed
from edgeflock.server.monitoring.health import RunHealth
from edgeflock.server.monitoring.listeners import Listeners
from edgeflock.server.sessions import Gateways, RunHost, Writer
from edgeflock.server.training_graph.served import GraphStore
from edgeflock.server.web import Asset, LoginAttempts, Origins

ASSETS = web.AppKey("assets", dict[str, Asset])
"""The page's files by name."""
ATTEMPTS = web.AppKey("attempts", LoginAttempts)
AUDIT = web.AppKey("audit", Audit)
AUTHORITY = web.AppKey("authority", Authority)
CONNECTION = web.RequestKey("connection", GuardedConnection)
CONNECTION_LIMITS = web.AppKey("connection_limits", ConnectionLimits)
EVALUATOR = web.AppKey("evaluator", Evaluator)
FEED = web.AppKey("feed", Feed)
GATEWAYS = web.AppKey("gateways", Gateways)
GRAPHS = web.AppKey("graphs", GraphStore)
LISTENERS = web.AppKey("listeners", Listeners)
LOGINS = web.AppKey("logins", Logins)
HEALTH = web.AppKey("health", RunHealth)
PAGE_PATH = web.AppKey("page_path", str)
"""The path of the page, as browsers see it."""
MODEL_EXPORTS = web.AppKey("model_exports", ModelExports)
ORIGINS = web.AppKey("origins", Origins)
HOST = web.AppKey("host", RunHost)
PIN = web.AppKey("pin", bytes)
"""The pin of the server's public key. If it is empty, devices compare none."""
REGISTER = web.AppKey("register", Register)
TRAINING = web.AppKey("training", dict[str, Asset])
"""The training page's files by path. It exists only if browsers may take part."""
WATCHERS = web.AppKey("watchers", Watchers)
WRITER = web.AppKey("writer", Writer)
