//! The random time that a run waits before it begins, so that many hosts do not reach a database at once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use kelvin_core::units;
use kelvin_sys::stop_signals;

use crate::cli_error::{CliError, Context};
use crate::progress::show_time_progress;

/// Waits a part of this time, always the same on a host and another one on others.
///
/// # Errors
/// A signal.
pub fn wait_for_host(limit: Duration) -> Result<(), CliError> {
    stop_signals::install_handlers().context("cannot watch for signals")?;
    let delay = delay_of_host(&host_seed(), limit);
    let [delay_text, limit_text] = [delay, limit].map(|time| units::seconds(time.as_secs_f64()));
    notice!("waits {delay_text} of at most {limit_text} before the run (--jitter)");
    show_time_progress(delay, || wait(delay))
}

fn wait(delay: Duration) -> Result<(), CliError> {
    if stop_signals::sleep_unless_stopped(delay)? {
        return Ok(());
    }
    let signal = stop_signals::stop_signal().unwrap_or_default();
    bail!("{signal} ended the wait of --jitter: nothing was measured");
}

/// What tells this host from others: its id, or else its name.
fn host_seed() -> String {
    let root = Path::new("/");
    let (host, name) = (kelvin_machine::host(root), kelvin_machine::host_name(root));
    host.get().or(name.get()).cloned().unwrap_or_default()
}

/// The share of the limit that a hash of the host gives: evenly spread over hosts.
fn delay_of_host(seed: &str, limit: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    limit.mul_f64(hasher.finish() as f64 / (u64::MAX as f64 + 1.0))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn delay_is_of_the_host_and_spread_evenly() {
        let limit = Duration::from_secs(1000);
        let delay = |host: usize| delay_of_host(&format!("host {host}"), limit);
        assert_eq!(delay(1), delay(1));
        let mut hosts_of_tenth = [0; 10];
        for host in 0..1000 {
            assert!(delay(host) <= limit);
            hosts_of_tenth[(delay(host).as_secs() / 100).min(9) as usize] += 1;
        }
        // 100 are expected: 50 is five standard deviations less.
        assert!(hosts_of_tenth.iter().all(|&hosts| hosts > 50), "{hosts_of_tenth:?}");
    }

    #[test]
    fn delay_is_waited_out() {
        let start = Instant::now();
        wait(Duration::from_millis(20)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
