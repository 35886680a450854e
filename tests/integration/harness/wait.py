"""Waiting for a condition: the only way in which these tests let time pass."""
import time

PATIENCE = 15.0  # seconds; a bound against hanging, never a claim about speed


def eventually(condition, what, timeout=PATIENCE, every=0.01):
    """Polls until `condition()` is true and returns its value; fails with `what` otherwise."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout:g} s still not so: {what() if callable(what) else what}")
        time.sleep(every)
