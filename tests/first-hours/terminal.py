"""A terminal of any width, on which commands of kelvin are played."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from answer import Answer
from first_hour import HANG_SECONDS, decode

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# The only other sequence that kelvin may use.
ERASE_LINE = "\x1b[2K"
ROWS = 24


class TerminalAnswer(Answer):
    """What a command showed on a terminal, where both of its streams are one text."""

    def check_text(self):
        shown = COLOUR.sub("", self.stdout).replace(ERASE_LINE, "").replace("\r\n", "\n").replace("\r", "\n")
        Answer(self.words, self.status, shown, "").check_text()

    def rows(self):
        """Each line in each state that it was shown in, without colours."""
        text = COLOUR.sub("", self.stdout).replace(ERASE_LINE, "")
        return [state for line in text.split("\n") for state in line.strip("\r").split("\r")]


def play_on_terminal(hour, columns, *words, keys=b"", after=0.0):
    """Calls kelvin on a terminal of this width; keys are typed after some seconds."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    take_terminal = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731
    process = hour.start(*words, stdin=end, stdout=end, stderr=end, preexec_fn=take_terminal)
    os.close(end)
    shown, start = b"", time.monotonic()
    while True:
        assert time.monotonic() < start + HANG_SECONDS, f"{words} hangs on a terminal: {shown[-2000:]!r}"
        if keys and time.monotonic() > start + after:
            os.write(terminal, keys)
            keys = b""
        if not select.select([terminal], [], [], 0.05)[0]:
            continue
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:
            # All who had it open have ended.
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    answer = TerminalAnswer(words, process.wait(HANG_SECONDS), decode(shown), "")
    answer.check_text()
    return answer
