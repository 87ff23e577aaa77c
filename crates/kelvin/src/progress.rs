//! The line on a terminal that shows the progress of long work; and the messages of a run.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use kelvin_core::text::escape_invisible;
use kelvin_core::{Event, Unit};
use kelvin_harness::EventSink;
use kelvin_report::units;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::locale::in_locale;
use crate::output::{self, ERASE_LINE, shows_progress};

/// Time before the line of work that may be short first appears, and between updates.
const FIRST_DRAW_DELAY: Duration = Duration::from_secs(1);
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// A line on standard error, replaced by its next text and erased when dropped; nothing if that is no terminal.
#[derive(Debug)]
pub struct StatusLine {
    is_shown: bool,
    /// Columns of its text: the last of a terminal stays free, since there some begin the next line.
    columns: usize,
    start: Instant,
    delay: Duration,
    /// When its text was drawn.
    last_draw: Mutex<Option<Instant>>,
}

impl StatusLine {
    /// An empty line.
    pub fn new() -> Self {
        Self::with_delay(Duration::ZERO)
    }

    /// One that appears only if the work takes long.
    pub fn after_delay() -> Self {
        Self::with_delay(FIRST_DRAW_DELAY)
    }

    fn with_delay(delay: Duration) -> Self {
        let columns = output::progress_columns().saturating_sub(1);
        Self { is_shown: shows_progress(), columns, start: Instant::now(), delay, last_draw: Mutex::default() }
    }

    /// Replaces the text of the line.
    pub fn show(&self, text: impl Display) {
        if self.is_shown
            && let Ok(mut last_draw) = self.last_draw.lock()
        {
            *last_draw = Some(Instant::now());
            // A longer line would be several, of which only the last is erased.
            let line: String = in_locale(&escape_invisible(&text.to_string())).chars().take(self.columns).collect();
            let _ = write!(io::stderr(), "{ERASE_LINE}{line}");
        }
    }

    /// Replaces the text of the line, unless that is too early, by what is made of the time since the beginning.
    pub fn show_at_intervals(&self, text: impl FnOnce(Duration) -> String) {
        let elapsed = self.start.elapsed();
        // Another thread that is drawing draws as good a line.
        let is_due = |last_draw: &Option<Instant>| last_draw.is_none_or(|time| time.elapsed() >= REDRAW_INTERVAL);
        if self.is_shown && elapsed >= self.delay && self.last_draw.try_lock().is_ok_and(|last_draw| is_due(&last_draw))
        {
            self.show(text(elapsed));
        }
    }

    /// Shows how many bytes are done, and of how many, if that is known.
    pub fn show_bytes(&self, done_bytes: u64, total: Option<u64>) {
        self.show_at_intervals(|elapsed| byte_progress_text(done_bytes, total, elapsed));
    }

    fn erase(&self) {
        if let Ok(mut last_draw) = self.last_draw.lock()
            && last_draw.take().is_some()
        {
            let _ = write!(io::stderr(), "{ERASE_LINE}");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.erase();
    }
}

/// Shows on a terminal how much of a time has passed while work goes on that takes this long.
pub fn show_time_progress<T>(time: Duration, work: impl FnOnce() -> T) -> T {
    if !shows_progress() {
        return work();
    }
    let (end_sender, end_receiver) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Without a thread for it the work goes on unseen.
        let _ = ThreadBuilder::named("progress").start_in(scope, move || {
            let line = StatusLine::after_delay();
            // It ends when the other end is dropped, also by a panic.
            while end_receiver.recv_timeout(REDRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                line.show_at_intervals(|elapsed| time_progress_text(elapsed, time));
            }
        });
        let result = work();
        drop(end_sender);
        result
    })
}

/// `3.00 s of 10.0 s, 7.00 s left`; of work that takes longer than expected, `12.0 s of 10.0 s`.
fn time_progress_text(elapsed: Duration, time: Duration) -> String {
    let passed = format!("{} of {}", units::seconds(elapsed.as_secs_f64().floor()), units::seconds(time.as_secs_f64()));
    match time.checked_sub(elapsed) {
        Some(remaining) => format!("{passed}, {} left", units::seconds(remaining.as_secs_f64().ceil())),
        None => passed,
    }
}

/// How much is done after so long, and of how much, if that is known.
pub fn byte_progress_text(done_bytes: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = done_bytes as f64 / elapsed.as_secs_f64();
    let rate_text = units::value_text(rate, Unit::BytesPerSecond);
    match total {
        Some(bytes) if bytes >= done_bytes => format!(
            "{} of {}, {rate_text}, {} left",
            units::share(done_bytes as f64 / bytes.max(1) as f64),
            units::bytes(bytes),
            units::seconds((bytes - done_bytes) as f64 / rate),
        ),
        _ => format!("{}, {rate_text}", units::bytes(done_bytes)),
    }
}

/// Cases that are left out together and named each.
const MAX_NAMED_CASES: usize = 4;

/// The messages of a run: the current case and the time left, between rounds; and the cases omitted for lack of time.
#[derive(Debug)]
pub struct RunStatusLine {
    line: StatusLine,
    /// Whether a round has begun: cases omitted before it are already reported.
    has_started: bool,
    /// Cases left out since the last round.
    omitted_cases: Vec<String>,
}

impl RunStatusLine {
    /// That of a run that begins.
    pub fn new() -> Self {
        Self { line: StatusLine::new(), has_started: false, omitted_cases: Vec::new() }
    }

    /// Reports which cases have been left out.
    fn report_omitted_cases(&mut self) {
        let mut names = std::mem::take(&mut self.omitted_cases);
        if names.is_empty() {
            return;
        }
        if let Some(omitted @ 1..) = names.len().checked_sub(MAX_NAMED_CASES) {
            names.truncate(MAX_NAMED_CASES);
            names.push(format!("and {omitted} more"));
        }
        self.line.erase();
        output::eprint_names("kelvin: rounds take longer here than expected; these are left out after all:", &names);
    }
}

impl EventSink for RunStatusLine {
    fn event(&mut self, event: &Event) {
        match event {
            Event::CaseSkipped { probe, case, .. } if self.has_started => {
                self.omitted_cases.push(format!("{probe} {case}").trim_end().to_owned())
            }
            Event::Extended { seconds } => {
                self.line.erase();
                notice!("rounds take long on this machine: the run will take about {}", units::seconds(*seconds));
            }
            Event::RoundStarted { probe, case, done, seconds_left, .. } => {
                self.report_omitted_cases();
                self.has_started = true;
                // How many there will be is not known before the end: each round shows whether others are worth their time.
                self.line.show_at_intervals(|_| {
                    let case_text: String = format!("{probe} {case}").chars().take(44).collect();
                    format!("{done:>4} rounds, at most {seconds_left:>3.0} s left  {case_text}")
                });
            }
            Event::Finished { .. } => self.report_omitted_cases(),
            Event::Started(_) | Event::CaseSkipped { .. } | Event::RoundFinished { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timed_work_shows_time_left() {
        let line = |elapsed| time_progress_text(Duration::from_millis(elapsed), Duration::from_secs(10));
        assert_eq!(line(3200), "3.00 s of 10.0 s, 7.00 s left");
        assert_eq!(line(12_000), "12.0 s of 10.0 s");
        assert_eq!(show_time_progress(Duration::from_secs(1), || 7), 7);
    }

    #[test]
    fn known_total_shows_time_left() {
        let line = |done_bytes, total| byte_progress_text(done_bytes, total, Duration::from_secs(2));
        assert_eq!(line(1 << 30, Some(4 << 30)), "25 % of 4 GiB, 537 MB/s, 6.00 s left");
        assert_eq!(line(1 << 30, None), "1 GiB, 537 MB/s");
        assert_eq!(line(1 << 30, Some(5)), "1 GiB, 537 MB/s");
    }
}
