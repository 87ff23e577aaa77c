//! The progress line of commands that move so many bytes: the share that is done, the rate, and the time left.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use kelvin_core::Unit;
use kelvin_report::units;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::output::{ERASE_LINE, shows_progress};

/// Time before the line first appears, and between updates.
const FIRST_DRAW_DELAY: Duration = Duration::from_secs(1);
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// A progress line on the terminal while moving bytes takes long; erased when dropped.
pub struct ByteProgress {
    begun: Instant,
    drawn: Option<Mutex<Option<Instant>>>,
}

impl ByteProgress {
    /// On standard error; nothing if that is no terminal.
    pub fn begin() -> Self {
        let drawn = shows_progress().then(Mutex::default);
        Self { begun: Instant::now(), drawn }
    }

    /// Shows how many bytes are done, and of how many, if that is known.
    pub fn show(&self, done: u64, of: Option<u64>) {
        let elapsed = self.begun.elapsed();
        let Some(drawn) = self.drawn.as_ref().filter(|_| elapsed >= FIRST_DRAW_DELAY) else { return };
        // Another thread that is drawing draws as good a line.
        let Ok(mut last) = drawn.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < REDRAW_INTERVAL) {
            return;
        }
        *last = Some(Instant::now());
        let _ = write!(io::stderr(), "{ERASE_LINE}{}", byte_progress_text(done, of, elapsed));
    }
}

/// Shows on a terminal how much of a time has passed while work goes on that takes this long.
pub fn show_time_progress<T>(time: Duration, work: impl FnOnce() -> T) -> T {
    if !shows_progress() {
        return work();
    }
    let (begun, (over, ended)) = (Instant::now(), std::sync::mpsc::channel::<()>());
    std::thread::scope(|scope| {
        // Without a thread for it the work goes on unseen.
        let _ = ThreadBuilder::named("progress").start_in(scope, move || {
            let mut drawn = false;
            // It ends when the other end is dropped, also by a panic.
            while ended.recv_timeout(REDRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if begun.elapsed() >= FIRST_DRAW_DELAY {
                    let _ = write!(io::stderr(), "{ERASE_LINE}{}", time_progress_text(begun.elapsed(), time));
                    drawn = true;
                }
            }
            if drawn {
                let _ = write!(io::stderr(), "{ERASE_LINE}");
            }
        });
        let done = work();
        drop(over);
        done
    })
}

/// `3.00 s of 10.0 s, 7.00 s left`; of work that takes longer than expected, `12.0 s of 10.0 s`.
fn time_progress_text(elapsed: Duration, time: Duration) -> String {
    let passed = format!("{} of {}", units::seconds(elapsed.as_secs_f64().floor()), units::seconds(time.as_secs_f64()));
    match time.checked_sub(elapsed) {
        Some(left) => format!("{passed}, {} left", units::seconds(left.as_secs_f64().ceil())),
        None => passed,
    }
}

/// How much is done after so long, and of how much, if that is known.
pub fn byte_progress_text(done: u64, of: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64();
    let shown = units::value_text(rate, Unit::BytesPerSecond);
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

impl Drop for ByteProgress {
    fn drop(&mut self) {
        let shown = self.drawn.as_ref().and_then(|drawn| drawn.lock().ok().and_then(|drawn| *drawn));
        if shown.is_some() {
            let _ = write!(io::stderr(), "{ERASE_LINE}");
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
        let line = |done, of| byte_progress_text(done, of, Duration::from_secs(2));
        assert_eq!(line(1 << 30, Some(4 << 30)), "25 % of 4 GiB, 537 MB/s, 6.00 s left");
        assert_eq!(line(1 << 30, None), "1 GiB, 537 MB/s");
        assert_eq!(line(1 << 30, Some(5)), "1 GiB, 537 MB/s");
    }
}
