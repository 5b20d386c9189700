"""What the tests over generated histories share: fewer examples, and work that is counted."""

import sys

from hypothesis import settings


def fewer(part):
    """A property that costs more than most: one in `part` of the profile's examples."""
    return settings(max_examples=settings.default.max_examples // part)


class Counted(list):
    """A list that counts the items that are taken out of it."""

    touched = 0

    def __iter__(self):
        for item in super().__iter__():
            self.touched += 1
            yield item

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.touched += len(found) if isinstance(place, slice) else 1
        return found


def work(function, history):
    """The calls that Python makes and the items of the list that are touched: no clock."""
    counted = Counted(history)
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function(counted)
    finally:
        sys.setprofile(before)
    return calls + counted.touched
