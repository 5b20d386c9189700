# The commands that a contributor gives. `make` alone lists them.

.PHONY: help install check test docs demo

help:
	@grep -E '^[a-z]+:.*#' Makefile | sed -E 's/:.*# /\t/'

install: # what the tests and the checks need, into the environment that is active
	python -m pip install -e '.[test]'

check: # style, imports, types
	ruff check .
	ruff format --check .
	lint-imports
	mypy

test: # the tests without servers, processes and notebooks
	pytest

docs: # build the site; every link is checked
	mkdocs build --strict --config-file docs/mkdocs.yml

demo: # two conversations, without the package and with it
	langgraph-patch demo
