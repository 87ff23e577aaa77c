"""What a command of kelvin answered, and what must hold of every answer wherever it was given."""
import re
import unicodedata

# Words that only a fault of the program prints: a panic, and values as Rust shows them to programmers.
PANIC = re.compile(r"panicked at|RUST_BACKTRACE|stack backtrace|thread '[^']*' \(?[0-9]*\)?|internal error|unreachable code")
DEBUG_TEXT = re.compile(r"\b(?:Some|None|Err|Ok|Os|Custom|PathBuf|OsString|Utf8Error|NulError|ErrorKind)\s*(?:\(|\{ )|\bkind: [A-Z]|\bcode: \d+, kind")
ESCAPE = re.compile(r"\x1b")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
# Blocks of characters that draw: boxes, blocks, shapes, ticks and crosses, arrows, braille.
DRAWING = re.compile("[\u2190-\u21ff\u2500-\u259f\u25a0-\u25ff\u2600-\u27bf\u2800-\u28ff]")
# A word that is wider than this share of a line cannot be broken, as a path cannot.
UNBREAKABLE_SHARE = 2
# The narrowest text that kelvin makes, however narrow the terminal is.
LEAST_COLUMNS = 40


def display_width(line):
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in line)
    return len(line) + wide - sum(unicodedata.combining(character) != 0 for character in line)


class Answer:
    """The end of a command: its exit status, negative for a signal, and what it printed."""

    def __init__(self, words, status, stdout, stderr):
        self.words, self.status, self.stdout, self.stderr = words, status, stdout, stderr

    def __str__(self):
        words = " ".join(repr(word) if not isinstance(word, str) or " " in word else word for word in self.words)
        return f"kelvin {words}: status {self.status}\n{self.stdout[-3000:]}\n--- standard error:\n{self.stderr[-3000:]}"

    def fail(self, reason):
        raise AssertionError(f"{reason}\n{self}")

    def check_text(self):
        """No panic, no debug text, and no control characters in what is not for a terminal."""
        for name, text in (("standard output", self.stdout), ("standard error", self.stderr)):
            for what, pattern in (("a panic", PANIC), ("debug text", DEBUG_TEXT), ("an escape sequence", ESCAPE), ("a control character", CONTROL)):
                found = pattern.search(text)
                if found:
                    self.fail(f"{what} on {name}: {text[max(found.start() - 40, 0) : found.end() + 40]!r}")

    def check_columns(self, columns):
        """Every line is as wide as the terminal at most, but for commands to be copied and words that cannot be broken."""
        columns = max(columns, LEAST_COLUMNS)
        for line in self.stdout.splitlines():
            is_breakable = all(len(word) < columns / UNBREAKABLE_SHARE for word in line.split())
            if display_width(line) > columns and is_breakable and "kelvin " not in line and "$ " not in line:
                self.fail(f"a line of {display_width(line)} columns, of {columns}: {line!r}")

    def check_plain(self):
        """No character that draws, for those who hear the text."""
        found = DRAWING.search(self.stdout + self.stderr)
        if found:
            self.fail(f"a character that draws: {found.group()!r}")

    def check_refusal(self, *words):
        """Status 2, and one line that has these words."""
        lines = self.stderr.splitlines()
        refusals = [line for line in lines if line.startswith("kelvin: ")]
        if self.status != 2 or not refusals or len(lines) != len(refusals):
            self.fail("no refusal by one line with status 2")
        missing = [word for word in words if word not in refusals[-1]]
        if missing:
            self.fail(f"the line lacks {missing}")
