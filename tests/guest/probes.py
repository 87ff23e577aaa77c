"""Every probe once, on a processor without the instructions of the last twenty years: nothing may crash, hang or fail for lack of one."""
import re

import guest

SCRIPT = "/bin/run_once --test-threads=1"


def contents(_, built):
    """The test program."""
    return guest.GuestContents(programs=[built.run_once])


def check(written):
    """All tests of the program passed, and there were some."""
    passed = re.search(r"test result: ok\. (\d+) passed; 0 failed", written)
    assert passed and int(passed[1]) > 1, written
    assert "every_probe_runs_its_first_case ... ok" in written, written
    return f"every probe read its first case, and {int(passed[1]) - 1} tests of more cases passed"
