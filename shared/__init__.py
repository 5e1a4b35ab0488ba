"""What both ends agree on: layout, records, codecs, selection, errors. No sockets, no event loop."""
