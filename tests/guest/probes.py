"""Every probe once, on a processor without recent instructions: no probe may crash, hang or fail because one is missing."""
import re

import guest

SCRIPT = "/bin/run_once --test-threads=1"


def contents(_, programs):
    """Guest contents with the test program."""
    return guest.GuestContents(programs=[programs.run_once])


def check(output):
    """Checks that all tests of the program passed, and that there were several."""
    match = re.search(r"test result: ok\. (\d+) passed; 0 failed", output)
    assert match and int(match[1]) > 1, output
    assert "every_probe_runs_its_first_case ... ok" in output, output
    return f"every probe read its first case, and {int(match[1]) - 1} tests of more cases passed"
