"""Messages between processes: records and frames, their bytes, and the back-off of retries.

messages.py and wire.py serve the session of a device, frames.py and feed.py that of a monitor, and app.py
a ClientApp's mod. schema.py checks them and fails closed. `gateway` is the connection of a gateway to its
leader, with its own checks. docs/protocol.md describes every byte of a session. Imports model and errors.
"""
