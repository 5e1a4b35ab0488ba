"""What operators ask a run and do to it: routes, roles, metrics, the page.

Handlers find what they need in the application (keys.py). Reading takes a sessions.Host, acting the writer.
Who comes here wants a single file, so nothing is handed out: settings are read without Prometheus.
"""
