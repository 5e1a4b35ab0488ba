"""What operators ask a run and do to it: HTTP, roles, the feed, metrics, trackers, evaluation.

Handlers find what they need in the application (keys.py); sessions.Host is all that reading takes, the
writer all that acting takes. Only app.py and hosting come here, for nearly every file, and `choices.py`
for the names of trackers: so the door hands nothing out, and a Flower strategy that reads its settings
loads no Prometheus. Imports sessions, roster, engine, training_graph.served; aiohttp is at home here.
"""
