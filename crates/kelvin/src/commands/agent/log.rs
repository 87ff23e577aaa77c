//! The agent's log, which never blocks: its reader may be slow, stuck or gone.
//!
//! A thread writes the lines from a bounded queue. Lines that exceed the rate limit or find the queue full are dropped and
//! counted, so unauthenticated clients can fill neither a disk nor the log of the authenticated ones.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelvin_transfer::wire::limits_serde::truncate;

use crate::output::ERASE_LINE;
use kelvin_sys::lock;
use kelvin_sys::thread_spawn::ThreadBuilder;

/// Maximum bytes of a line.
const MAX_LINE_BYTES: usize = 300;
/// Lines queued for writing, at most.
const MAX_QUEUED_LINES: usize = 256;
/// Lines about either kind of client that may come at once, and that may come in each second after that.
const LINE_BURST: f64 = 50.0;
const LINES_PER_SECOND: f64 = 10.0;
/// Time between two lines that say how many were dropped.
const DROP_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Whom a line is about.
#[derive(Clone, Copy, Debug)]
pub enum LogSource {
    /// An authenticated client, or the agent itself.
    Client,
    /// An unauthenticated client.
    Unauthenticated,
}

enum LogMessage {
    Line(String),
    /// What the next line replaces; nothing erases it.
    Transient(String),
    End,
}

/// Where lines go.
pub struct Log {
    queue: SyncSender<LogMessage>,
    is_written: Mutex<Receiver<()>>,
    allowances: [Mutex<LineBucket>; 2],
    dropped: Arc<AtomicU64>,
}

impl Log {
    /// Over a writer that may block for ever.
    ///
    /// # Errors
    /// If the thread that writes cannot be started.
    pub fn with_writer(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(MAX_QUEUED_LINES);
        let (written, is_written) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        ThreadBuilder::named("log").start(move || {
            write_lines(out, &messages, &counted);
            // The program may be exiting already.
            let _ = written.send(());
        })?;
        let allowances = [(); 2].map(|()| Mutex::new(LineBucket::new(Instant::now())));
        Ok(Self { queue, is_written: Mutex::new(is_written), allowances, dropped })
    }

    /// Logs a line about a client, unless there are too many.
    pub fn write_line(&self, about: LogSource, text: &str) {
        let mut allowance = lock(&self.allowances[about as usize]);
        let line = format!("kelvin: {}\n", truncate(text, MAX_LINE_BYTES));
        if !allowance.try_take(Instant::now()) || self.queue.try_send(LogMessage::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs a line about an authenticated client, or the program itself.
    pub fn note(&self, text: impl Display) {
        self.write_line(LogSource::Client, &text.to_string());
    }

    /// Shows on a terminal what the next line, or the end, replaces.
    pub fn write_transient(&self, text: &str) {
        // The next one comes soon.
        let _ = self.queue.try_send(LogMessage::Transient(truncate(text, MAX_LINE_BYTES)));
    }

    /// Waits until all lines are written, for at most this long.
    pub fn close(&self, patience: Duration) {
        if self.queue.try_send(LogMessage::End).is_ok() {
            let _ = lock(&self.is_written).recv_timeout(patience);
        }
    }
}

/// Writes the lines until the end, and now and then how many were dropped, those that could not be written included.
fn write_lines(mut out: impl Write, messages: &Receiver<LogMessage>, dropped: &AtomicU64) {
    let mut put = |line: String| {
        dropped.fetch_add(out.write_all(line.as_bytes()).is_err().into(), Ordering::Relaxed);
    };
    let (mut last, mut is_passing) = (Instant::now(), false);
    loop {
        let next = messages.recv_timeout(DROP_REPORT_INTERVAL);
        let is_end = matches!(next, Ok(LogMessage::End) | Err(RecvTimeoutError::Disconnected));
        match next {
            Ok(LogMessage::Line(line)) => put(format!("{}{line}", with_erase(&mut is_passing, ""))),
            Ok(LogMessage::Transient(text)) => put(with_erase(&mut is_passing, &text)),
            Ok(LogMessage::End) | Err(RecvTimeoutError::Disconnected) => put(with_erase(&mut is_passing, "")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_end || last.elapsed() >= DROP_REPORT_INTERVAL {
            last = Instant::now();
            if let count @ 1.. = dropped.swap(0, Ordering::Relaxed) {
                put(format!("kelvin: {count} lines dropped\n"));
            }
        }
        if is_end {
            return;
        }
    }
}

/// This in the place of what is shown now, if anything is or is to be; and remembers which.
fn with_erase(is_passing: &mut bool, text: &str) -> String {
    let erase = if *is_passing || !text.is_empty() { ERASE_LINE } else { "" };
    *is_passing = !text.is_empty();
    format!("{erase}{text}")
}

/// A token bucket of lines.
struct LineBucket {
    lines: f64,
    at: Instant,
}

impl LineBucket {
    fn new(at: Instant) -> Self {
        Self { lines: LINE_BURST, at }
    }

    /// Whether one more line is allowed now.
    fn try_take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.lines, self.at) = ((self.lines + LINES_PER_SECOND * passed).min(LINE_BURST), now);
        let is_one_left = self.lines >= 1.0;
        self.lines -= f64::from(u8::from(is_one_left));
        is_one_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what is written, once it may.
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl SharedBuffer {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn lines_are_cut_escaped_and_rate_limited() {
        let kept = SharedBuffer::default();
        let log = Log::with_writer(kept.clone()).unwrap();
        log.write_line(LogSource::Unauthenticated, &format!("\u{1b}[2J{}\nsecond", "x".repeat(70_000)));
        (0..10_000).for_each(|_| log.write_line(LogSource::Unauthenticated, "called"));
        log.write_line(LogSource::Client, "came");
        log.close(Duration::from_secs(60));
        let text = kept.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("kelvin: \u{fffd}[2Jxxx") && text.lines().all(|line| line.len() < 320), "{text}");
        assert!(lines.contains(&"kelvin: came"), "{text}");
        let left_out = lines.iter().filter_map(|line| line.strip_suffix(" lines dropped"));
        let left_out: usize = left_out.map(|line| line["kelvin: ".len()..].parse::<usize>().unwrap()).sum();
        assert_eq!(lines.iter().filter(|line| **line == "kelvin: called").count() + left_out, 10_000, "{text}");
        assert!(left_out > 0 && text.len() < 100_000);
    }

    #[test]
    fn transient_line_is_replaced_by_the_next() {
        let kept = SharedBuffer::default();
        let log = Log::with_writer(kept.clone()).unwrap();
        log.write_line(LogSource::Client, "came");
        log.write_transient("1 %");
        log.write_transient("2 %");
        log.write_line(LogSource::Client, "went");
        log.write_transient("3 %");
        log.close(Duration::from_secs(60));
        let erased = kept.text().replace(ERASE_LINE, "<");
        assert_eq!(erased, "kelvin: came\n<1 %<2 %<kelvin: went\n<3 %<");
    }

    #[test]
    fn bucket_empties_and_refills_with_time() {
        let begun = Instant::now();
        let mut allowance = LineBucket::new(begun);
        let mut taken = |milliseconds| {
            let now = begun + Duration::from_millis(milliseconds);
            (0..1000).filter(|_| allowance.try_take(now)).count()
        };
        assert_eq!([taken(0), taken(99), taken(100), taken(1100), taken(100_000)], [50, 0, 1, 10, 50]);
    }

    #[test]
    fn stuck_reader_blocks_nobody() {
        let kept = SharedBuffer::default();
        let stuck = kept.0.lock().unwrap();
        let log = Log::with_writer(kept.clone()).unwrap();
        (0..1000).for_each(|_| log.write_line(LogSource::Client, "one"));
        log.close(Duration::from_millis(10));
        drop(stuck);
    }
}
