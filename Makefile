# The commands one needs. `make` lists them.

PYTHON ?= python3

help:
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile

setup: .venv/ready  ## make .venv with everything, once for each change of what is needed

test: setup  ## run the tests, on all cores
	.venv/bin/python -m pytest -q

check:  ## run all that a change must pass, as continuous integration does
	bash .ci/run

format: setup  ## write the code as ruff wants it
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

quickstart: setup  ## train a small CNN with a server and four clients on this machine
	.venv/bin/edgeflock quickstart

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -q -c constraints.txt -e '.[dev]'
	.ci/typing
	touch $@

.PHONY: help setup test check format quickstart
