//! The progress line of commands that move so many bytes: the share that is done, the rate, and the time left.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kelvin_model::Unit;
use kelvin_report::units;

use crate::output::ERASE;

/// Time before the line first appears, and between updates.
const PATIENCE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(200);

/// A progress line on the terminal while moving bytes takes long; erased when dropped.
pub struct Progress {
    begun: Instant,
    drawn: Option<Mutex<Option<Instant>>>,
}

impl Progress {
    /// On standard error; nothing if that is no terminal.
    pub fn begin() -> Self {
        let drawn = io::stderr().is_terminal().then(Mutex::default);
        Self { begun: Instant::now(), drawn }
    }

    /// Shows how many bytes are done, and of how many, if that is known.
    pub fn show(&self, done: u64, of: Option<u64>) {
        let elapsed = self.begun.elapsed();
        let Some(drawn) = self.drawn.as_ref().filter(|_| elapsed >= PATIENCE) else { return };
        // Another thread that is drawing draws as good a line.
        let Ok(mut last) = drawn.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < PERIOD) {
            return;
        }
        *last = Some(Instant::now());
        let _ = write!(io::stderr(), "{ERASE}{}", line(done, of, elapsed));
    }
}

/// How much is done after so long, and of how much, if that is known.
pub fn line(done: u64, of: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64();
    let shown = units::plain(rate, Unit::BytesPerSecond);
    match of {
        Some(bytes) if bytes >= done => format!(
            "{} of {}, {shown}, {} left",
            units::share(done as f64 / bytes.max(1) as f64),
            units::bytes(bytes),
            units::seconds((bytes - done) as f64 / rate),
        ),
        _ => format!("{}, {shown}", units::bytes(done)),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let shown = self.drawn.as_ref().and_then(|drawn| drawn.lock().ok().and_then(|drawn| *drawn));
        if shown.is_some() {
            let _ = write!(io::stderr(), "{ERASE}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_long_it_takes_where_it_is_known_how_much_there_is() {
        let line = |done, of| line(done, of, Duration::from_secs(2));
        assert_eq!(line(1 << 30, Some(4 << 30)), "25 % of 4 GiB, 537 MB/s, 6.00 s left");
        assert_eq!(line(1 << 30, None), "1 GiB, 537 MB/s");
        assert_eq!(line(1 << 30, Some(5)), "1 GiB, 537 MB/s");
    }
}
