"""What all tests share."""

import hypothesis

for _name, _examples in {"ci": 500, "long": 5_000}.items():
    hypothesis.settings.register_profile(
        _name, max_examples=_examples, deadline=None, derandomize=True, database=None
    )


def pytest_addoption(parser):
    """`--long` runs the repeated, the generated and the killed in full."""
    parser.addoption("--long", action="store_true")


def pytest_configure(config):
    """500 generated examples for each property; with `--long`, 5,000."""
    hypothesis.settings.load_profile("long" if config.getoption("--long", default=False) else "ci")
