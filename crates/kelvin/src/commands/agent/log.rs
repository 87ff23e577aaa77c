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

use crate::locale::in_locale;
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
/// Time between two lines that report how many were dropped.
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
    end_receiver: Mutex<Receiver<()>>,
    allowances: [Mutex<LineBucket>; 2],
    dropped_lines: Arc<AtomicU64>,
}

impl Log {
    /// Over a writer that may block for ever.
    ///
    /// # Errors
    /// If the thread that writes cannot be started.
    pub fn with_writer(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(MAX_QUEUED_LINES);
        let (end_sender, end_receiver) = sync_channel(1);
        let dropped_lines = Arc::new(AtomicU64::new(0));
        let drop_counter = Arc::clone(&dropped_lines);
        ThreadBuilder::named("log").start(move || {
            write_lines(out, &messages, &drop_counter);
            // The program may be exiting already.
            let _ = end_sender.send(());
        })?;
        let allowances = [(); 2].map(|()| Mutex::new(LineBucket::new(Instant::now())));
        Ok(Self { queue, end_receiver: Mutex::new(end_receiver), allowances, dropped_lines })
    }

    /// Logs a line about a client, unless there are too many.
    pub fn write_line(&self, source: LogSource, text: &str) {
        let mut allowance = lock(&self.allowances[source as usize]);
        let line = format!("kelvin: {}\n", truncate(text, MAX_LINE_BYTES));
        if !allowance.try_take(Instant::now()) || self.queue.try_send(LogMessage::Line(line)).is_err() {
            self.dropped_lines.fetch_add(1, Ordering::Relaxed);
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
    pub fn close(&self, timeout: Duration) {
        if self.queue.try_send(LogMessage::End).is_ok() {
            let _ = lock(&self.end_receiver).recv_timeout(timeout);
        }
    }
}

/// Writes the lines until the end, and at intervals how many were dropped, those that could not be written included.
fn write_lines(mut out: impl Write, messages: &Receiver<LogMessage>, dropped: &AtomicU64) {
    let mut write = |line: String| {
        dropped.fetch_add(out.write_all(in_locale(&line).as_bytes()).is_err().into(), Ordering::Relaxed);
    };
    let (mut last, mut is_transient_shown) = (Instant::now(), false);
    loop {
        let next = messages.recv_timeout(DROP_REPORT_INTERVAL);
        let is_end = matches!(next, Ok(LogMessage::End) | Err(RecvTimeoutError::Disconnected));
        match next {
            Ok(LogMessage::Line(line)) => write(format!("{}{line}", with_erase(&mut is_transient_shown, ""))),
            Ok(LogMessage::Transient(text)) => write(with_erase(&mut is_transient_shown, &text)),
            Ok(LogMessage::End) | Err(RecvTimeoutError::Disconnected) => write(with_erase(&mut is_transient_shown, "")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_end || last.elapsed() >= DROP_REPORT_INTERVAL {
            last = Instant::now();
            if let count @ 1.. = dropped.swap(0, Ordering::Relaxed) {
                write(format!("kelvin: {count} lines dropped\n"));
            }
        }
        if is_end {
            return;
        }
    }
}

/// The text behind the sequence that erases a transient line, if one is shown or follows; records whether one follows.
fn with_erase(is_transient_shown: &mut bool, text: &str) -> String {
    let erase = if *is_transient_shown || !text.is_empty() { ERASE_LINE } else { "" };
    *is_transient_shown = !text.is_empty();
    format!("{erase}{text}")
}

/// A token bucket of lines.
struct LineBucket {
    lines: f64,
    last_refill: Instant,
}

impl LineBucket {
    fn new(now: Instant) -> Self {
        Self { lines: LINE_BURST, last_refill: now }
    }

    /// Whether one more line is allowed now.
    fn try_take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.last_refill).as_secs_f64();
        (self.lines, self.last_refill) = ((self.lines + LINES_PER_SECOND * elapsed).min(LINE_BURST), now);
        let is_allowed = self.lines >= 1.0;
        self.lines -= f64::from(u8::from(is_allowed));
        is_allowed
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
        let buffer = SharedBuffer::default();
        let log = Log::with_writer(buffer.clone()).unwrap();
        log.write_line(LogSource::Unauthenticated, &format!("\u{1b}[2J{}\nsecond", "x".repeat(70_000)));
        (0..10_000).for_each(|_| log.write_line(LogSource::Unauthenticated, "called"));
        log.write_line(LogSource::Client, "came");
        log.close(Duration::from_secs(60));
        let text = buffer.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("kelvin: \u{fffd}[2Jxxx") && text.lines().all(|line| line.len() < 320), "{text}");
        assert!(lines.contains(&"kelvin: came"), "{text}");
        let drop_counts = lines.iter().filter_map(|line| line.strip_suffix(" lines dropped"));
        let dropped: usize = drop_counts.map(|line| line["kelvin: ".len()..].parse::<usize>().unwrap()).sum();
        assert_eq!(lines.iter().filter(|line| **line == "kelvin: called").count() + dropped, 10_000, "{text}");
        assert!(dropped > 0 && text.len() < 100_000);
    }

    #[test]
    fn transient_line_is_replaced_by_the_next() {
        let buffer = SharedBuffer::default();
        let log = Log::with_writer(buffer.clone()).unwrap();
        log.write_line(LogSource::Client, "came");
        log.write_transient("1 %");
        log.write_transient("2 %");
        log.write_line(LogSource::Client, "went");
        log.write_transient("3 %");
        log.close(Duration::from_secs(60));
        let output = buffer.text().replace(ERASE_LINE, "<");
        assert_eq!(output, "kelvin: came\n<1 %<2 %<kelvin: went\n<3 %<");
    }

    #[test]
    fn bucket_empties_and_refills_with_time() {
        let start = Instant::now();
        let mut allowance = LineBucket::new(start);
        let mut count_allowed = |milliseconds| {
            let now = start + Duration::from_millis(milliseconds);
            (0..1000).filter(|_| allowance.try_take(now)).count()
        };
        assert_eq!(
            [count_allowed(0), count_allowed(99), count_allowed(100), count_allowed(1100), count_allowed(100_000)],
            [50, 0, 1, 10, 50]
        );
    }

    #[test]
    fn stuck_reader_blocks_nobody() {
        let buffer = SharedBuffer::default();
        let guard = buffer.0.lock().unwrap();
        let log = Log::with_writer(buffer.clone()).unwrap();
        (0..1000).for_each(|_| log.write_line(LogSource::Client, "one"));
        log.close(Duration::from_millis(10));
        drop(guard);
    }
}
