//! Interfaces of the calling thread's network namespace, as `ip` and `tc` configure them.

use std::process::Command;

use crate::thread_spawn::process_error;

/// Bytes that pass a limited link at once: what is due in 5 ms, and at least this much. A smaller burst loses rate to late timers.
const MIN_BURST_BYTES: u64 = 128 << 10;
const BURSTS_PER_SECOND: u64 = 200;
/// Maximum queueing delay of a packet.
const MAX_QUEUE_DELAY: &str = "50ms";

/// Why nothing was configured.
#[derive(Debug)]
pub enum ConfigureError {
    /// The program could not be started.
    Program {
        /// Its name.
        name: String,
        /// Why not.
        error: std::io::Error,
    },
    /// It refused.
    Refused {
        /// The command.
        command: String,
        /// Its error output.
        stderr: String,
    },
}

/// Runs `ip` or `tc`.
///
/// # Errors
/// Without the program, the right or the kernel for it.
pub fn configure(program: &str, arguments: &[&str]) -> Result<(), ConfigureError> {
    let output = Command::new(program).args(arguments).output().map_err(process_error);
    let output = output.map_err(|error| ConfigureError::Program { name: program.to_owned(), error })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ConfigureError::Refused { command: format!("{program} {}", arguments.join(" ")), stderr })
}

/// Limits what an interface sends to this many bits a second, by a token bucket filter.
///
/// # Errors
/// As [`configure`].
pub fn limit_rate(interface: &str, bits_per_second: u64) -> Result<(), ConfigureError> {
    let burst = (bits_per_second / 8 / BURSTS_PER_SECOND).max(MIN_BURST_BYTES).to_string();
    let limits = ["rate", &format!("{bits_per_second}bit"), "burst", &burst, "latency", MAX_QUEUE_DELAY];
    configure("tc", &[&["qdisc", "add", "dev", interface, "root", "tbf"][..], &limits].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_refusing_programs_differ() {
        let missing_program = configure("no-such-program-of-iproute", &[]);
        assert!(
            matches!(missing_program, Err(ConfigureError::Program { name, .. }) if name == "no-such-program-of-iproute")
        );
        let refusing_program = configure("sh", &["-c", "echo no >&2; exit 1"]);
        assert!(matches!(refusing_program, Err(ConfigureError::Refused { stderr, .. }) if stderr == "no"));
    }
}
