"""Nothing that is alive is ended by a node that asks a model of its own."""

from gates.laws import broken, covering, table, variants


def pytest_generate_tests(metafunc):
    """Play a covering; with `--long` the whole table, and what gates return and how they ask."""
    if "row" in metafunc.fixturenames:
        rows = [*covering()]
        if metafunc.config.getoption("--long"):
            rows = [*table(), *variants()]
        metafunc.parametrize("row", rows, ids=lambda row: "-".join(map(str, [*row[0], [*row[1]]])))


def test_what_is_alive_stays_alive(row):
    """What the bare graph runs is run, and nothing else; what it asks is asked; all is true."""
    laws, (_, right, _) = broken(*row)
    assert len(right.turns[0].did) == 2
    assert laws == []


def test_the_rows_are_all_there():
    """Each place with each refusal, in the quick suite too."""
    assert (len({*map(str, table())}), len({*map(str, variants())})) == (4060, 4930)
    assert len({(form.place, form.refusal) for form, _ in covering()}) == 9 * 5 + 1
