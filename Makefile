# The commands that a contributor gives. `make` alone lists them.

.PHONY: help install check test server docs demo

help:
	@grep -E '^[a-z]+:.*#' Makefile | sed -E 's/:.*# /\t/'

install: # what the tests and the checks need, into the environment that is active
	python -m pip install -e '.[dev]'

check: # style, imports, types
	ruff check .
	ruff format --check .
	lint-imports
	mypy

test: # the tests without servers, other packages and notebooks
	pytest

server: # install what the other tests need, and run them
	python -m pip install -e '.[test]'
	pytest -m server

docs: # build the site; every link is checked
	python -m pip install -e '.[docs]'
	mkdocs build --strict --config-file docs/mkdocs.yml

demo: # two conversations, without the package and with it
	langgraph-patch demo
