//! What writes lines to a file, and says once that it cannot.

use std::fs::File;
use std::io::{Error, ErrorKind, Write};

use memchr::memchr_iter;

/// A file for lines.
#[derive(Debug)]
pub(super) struct LogWriter<W = File> {
    file: W,
    /// Lines that were lost since all could be written.
    lost: u64,
    /// Whether it ends with a part of a line.
    is_torn: bool,
}

impl<W: Write> LogWriter<W> {
    pub fn new(file: W) -> Self {
        Self { file, lost: 0, is_torn: false }
    }

    /// Writes to another file from now on.
    pub fn replace(&mut self, file: W) {
        (self.file, self.is_torn) = (file, false);
    }

    /// Writes whole lines, before which this many others found no room. Returns what is to be said where lines begin to be lost, or are
    /// lost no more.
    pub fn write(&mut self, lines: &[u8], dropped: u64) -> Option<String> {
        let (written, error) = self.write_lines(lines);
        let lost = dropped + memchr_iter(b'\n', &lines[written..]).count() as u64;
        let lost_before = self.lost;
        self.lost += lost;
        match (lost_before, lost) {
            (0, 1..) => {
                let reason =
                    error.map_or_else(|| "it cannot be written as fast as they come".into(), |error| error.to_string());
                Some(format!("lines are lost: {reason}"))
            }
            (1.., 0) if !lines.is_empty() => self.final_notice().inspect(|_| self.lost = 0),
            _ => None,
        }
    }

    /// How many were lost, if any were.
    pub fn final_notice(&self) -> Option<String> {
        let lost = self.lost;
        (lost > 0).then(|| format!("{lost} line{} lost", if lost == 1 { " was" } else { "s were" }))
    }

    /// Writes as much as can be written: how much, and what kept it from more.
    fn write_lines(&mut self, lines: &[u8]) -> (usize, Option<Error>) {
        if self.is_torn && !lines.is_empty() {
            // So that the next one is whole.
            if let (0, error) = self.write_bytes(b"\n") {
                return (0, error);
            }
            self.is_torn = false;
        }
        let (written, error) = self.write_bytes(lines);
        self.is_torn |= lines[..written].last().is_some_and(|&byte| byte != b'\n');
        (written, error)
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> (usize, Option<Error>) {
        let mut written = 0;
        while written < bytes.len() {
            match self.file.write(&bytes[written..]) {
                Ok(0) => return (written, Some(ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct SmallDisk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.content.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn full_disk_is_reported_once_and_its_end_with_what_was_lost() {
        let mut writer = LogWriter::new(SmallDisk { content: Vec::new(), room: 7 });
        assert_eq!(writer.write(b"one\n", 0), None);
        let notice = writer.write(b"two\nthree\n", 0).unwrap();
        assert!(notice.starts_with("lines are lost: no storage space"), "{notice}");
        assert_eq!(writer.write(b"four\n", 1), None);
        assert_eq!((writer.write(b"", 0), writer.final_notice()), (None, Some("4 lines were lost".into())));
        writer.file.room = 100;
        assert_eq!(writer.write(b"five\n", 0), Some("4 lines were lost".into()));
        assert_eq!((writer.write(b"six\n", 0), writer.final_notice()), (None, None));
        assert_eq!(String::from_utf8(writer.file.content).unwrap(), "one\ntwo\nfive\nsix\n");
    }

    #[test]
    fn torn_line_is_ended_before_the_next() {
        let mut writer = LogWriter::new(SmallDisk { content: Vec::new(), room: 6 });
        assert!(writer.write(b"one\ntwo\n", 0).is_some());
        writer.file.room = 100;
        assert_eq!(writer.write(b"three\n", 0), Some("1 line was lost".into()));
        assert_eq!(String::from_utf8(writer.file.content).unwrap(), "one\ntw\nthree\n");
    }

    #[test]
    fn lines_that_found_no_room_are_lost() {
        let mut writer = LogWriter::new(Vec::new());
        let notice = writer.write(b"one\n", 2).unwrap();
        assert_eq!(notice, "lines are lost: it cannot be written as fast as they come");
        assert_eq!(writer.write(b"two\n", 0), Some("2 lines were lost".into()));
    }
}
