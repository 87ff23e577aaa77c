//! The progress line on a terminal: what is being measured, and the time left.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::output::ERASE;

use kelvin_harness::Sink;
use kelvin_model::Event;

/// Minimum time between two updates.
const PERIOD: Duration = Duration::from_millis(200);

/// A progress line on standard error, erased when it is dropped. Drawn only between rounds.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    drawn: Option<Instant>,
}

impl Progress {
    /// A line, or nothing if `shown` is false.
    pub fn new(shown: bool) -> Self {
        Self { shown, drawn: None }
    }
}

impl Sink for Progress {
    fn event(&mut self, event: &Event) {
        let Event::RoundStarted { probe, case, done, planned, seconds_left } = event else { return };
        if !self.shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < PERIOD) {
            return;
        }
        self.drawn = Some(Instant::now());
        let what: String = format!("{probe} {case}").chars().take(44).collect();
        let _ =
            write!(std::io::stderr(), "{ERASE}{done:>4}/{planned} rounds, at most {seconds_left:>3.0} s left  {what}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "{ERASE}");
        }
    }
}
