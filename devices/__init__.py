"""The front door: the command line, device profiles, and whatever hosts both ends.

commands/ is the command line; papers/ the evaluations that it reproduces; quickstart/ a fleet of processes;
watching/ what shows a run; profiles/ devices as data. What stands flat beside them emulates fleets, and
numbers.py is how all of them write a number. May import everything; nothing else imports it.
"""
