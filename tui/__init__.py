"""The terminal monitor. It reads a server's HTTP interface only."""
