"""What both ends agree on: layout, records, codecs, selection, errors. numpy and msgpack only."""
