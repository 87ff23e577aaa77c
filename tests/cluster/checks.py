"""What tests of kelvin-cluster check with."""
import time


class Failure(Exception):
    """A test failed."""


def check(condition, *facts):
    if not condition:
        raise Failure("\n".join(str(fact) for fact in facts))


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(0.05)
