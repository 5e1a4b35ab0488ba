"""HTTP: the routes of devices and operators, and what each request passes before its handler.

    middleware          the middlewares in their order: caller, limits, origin, role, body, rate, audit
    callers, roles      who sends a request, and which roles may use a route
    keys                the application keys under which handlers find the server's parts
    bodies              JSON objects, refusals, bytes in whole or in part
    status, watchers    the run's state, once or as a feed; metrics for Prometheus
    models              the model as numbers, graphs and files, which model_exports makes
    actions             what an admin changes
    sessions, joining   the WebSockets of devices and gateways, and how a device joins
    page                the monitor in the browser, and its logins
    training_page       the page on which a browser takes part as a device
    revocations         ends the sessions of tokens that were revoked

The package exports no names: a module is imported by itself, so that settings load without Prometheus.
"""
