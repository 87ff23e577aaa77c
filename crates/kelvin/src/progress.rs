//! What is said while a run goes on: on a terminal a line with what is being measured and the time left; and what is decided for lack
//! of time.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::output::{self, ERASE_LINE};

use kelvin_core::units::seconds;
use kelvin_core::{Case, Event, Name};
use kelvin_harness::EventSink;

/// Minimum time between two updates.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
/// Cases that are left out together and named each.
const MAX_NAMED_CASES: usize = 4;

/// A progress line on standard error, erased when it is dropped. Drawn only between rounds.
#[derive(Debug)]
pub struct RunProgressLine {
    shown: bool,
    drawn: Option<Instant>,
    /// Whether a round has begun: what was left out before has been said.
    begun: bool,
    /// Cases left out since the last round.
    left_out: Vec<String>,
}

impl RunProgressLine {
    /// A line; nothing on what is no terminal.
    pub fn new() -> Self {
        Self { shown: output::shows_progress(), drawn: None, begun: false, left_out: Vec::new() }
    }

    /// Draws how many rounds are done, and the time that is left. How many there will be is not known before the end: each round shows
    /// whether others are worth their time.
    fn draw(&mut self, (probe, case): (&Name, &Case), done: usize, seconds_left: f64) {
        if !self.shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        let what: String = format!("{probe} {case}").chars().take(44).collect();
        let _ = write!(std::io::stderr(), "{ERASE_LINE}{done:>4} rounds, at most {seconds_left:>3.0} s left  {what}");
    }

    /// Says which cases have been left out.
    fn report_left_out(&mut self) {
        let mut names = std::mem::take(&mut self.left_out);
        if names.is_empty() {
            return;
        }
        if let Some(more @ 1..) = names.len().checked_sub(MAX_NAMED_CASES) {
            names.truncate(MAX_NAMED_CASES);
            names.push(format!("and {more} more"));
        }
        self.erase();
        output::eprint_names("kelvin: rounds take longer here than expected; these are left out after all:", &names);
    }

    fn erase(&self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "{ERASE_LINE}");
        }
    }
}

impl EventSink for RunProgressLine {
    fn event(&mut self, event: &Event) {
        match event {
            Event::CaseSkipped { probe, case, .. } if self.begun => {
                self.left_out.push(format!("{probe} {case}").trim_end().to_owned())
            }
            Event::Lengthened { seconds: all } => {
                self.erase();
                let all = seconds(*all);
                output::eprint_line(format_args!(
                    "kelvin: rounds take long on this machine: the run will take about {all}"
                ));
            }
            Event::RoundStarted { probe, case, done, seconds_left, .. } => {
                self.report_left_out();
                self.begun = true;
                self.draw((probe, case), *done, *seconds_left);
            }
            Event::Finished { .. } => self.report_left_out(),
            Event::Started(_) | Event::CaseSkipped { .. } | Event::RoundFinished { .. } => {}
        }
    }
}

impl Drop for RunProgressLine {
    fn drop(&mut self) {
        self.erase();
    }
}
