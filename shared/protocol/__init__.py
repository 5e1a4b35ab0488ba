"""What crosses a process: records and frames, their bytes, and the manners of asking again.

messages.py and wire.py are a device's session, frames.py and feed.py a monitor's, flower.py a ClientApp's
mod; schema.py checks them all and fails closed. gateway is a gateway's line to its leader, and checks its
own. docs/protocol.md says every byte of a session. Imports model and errors.
"""
