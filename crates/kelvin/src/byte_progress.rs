//! The progress line of commands that move so many bytes: the share that is done, the rate, and the time left.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kelvin_model::Unit;
use kelvin_report::units;

/// Time before the line first appears, and between updates.
const PATIENCE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_millis(200);

/// A progress line on the terminal while moving bytes takes long; erased when dropped.
pub struct Progress {
    bytes: u64,
    begun: Instant,
    drawn: Option<Mutex<Option<Instant>>>,
}

impl Progress {
    /// Of so many bytes, on standard error; nothing if that is no terminal.
    pub fn new(bytes: u64) -> Self {
        let drawn = io::stderr().is_terminal().then(Mutex::default);
        Self { bytes, begun: Instant::now(), drawn }
    }

    /// Shows how many are done.
    pub fn show(&self, done: u64) {
        let elapsed = self.begun.elapsed();
        let Some(drawn) = self.drawn.as_ref().filter(|_| elapsed >= PATIENCE) else { return };
        // Another thread that is drawing draws as good a line.
        let Ok(mut last) = drawn.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < PERIOD) {
            return;
        }
        *last = Some(Instant::now());
        let rate = done as f64 / elapsed.as_secs_f64();
        let _ = write!(
            io::stderr(),
            "\r\x1b[2K{} of {}, {}, {} left",
            units::share(done as f64 / self.bytes.max(1) as f64),
            units::bytes(self.bytes),
            units::plain(rate, Unit::BytesPerSecond),
            units::seconds((self.bytes - done) as f64 / rate),
        );
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let shown = self.drawn.as_ref().and_then(|drawn| drawn.lock().ok().and_then(|drawn| *drawn));
        if shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
