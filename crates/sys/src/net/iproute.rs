//! Interfaces of the calling thread's network namespace, as `ip` and `tc` configure them.

use std::process::Command;

use crate::spawn::of_process;

/// Bytes that pass a limited link at once: what is due in 5 ms, and at least this much. A smaller burst loses rate to late timers.
const LEAST_BURST: u64 = 128 << 10;
const BURSTS_PER_SECOND: u64 = 200;
/// Maximum queueing delay of a packet.
const LATENCY: &str = "50ms";

/// Why nothing was configured.
#[derive(Debug)]
pub enum Unconfigured {
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
        /// What it said.
        said: String,
    },
}

/// Runs `ip` or `tc`.
///
/// # Errors
/// Without the program, the right or the kernel for it.
pub fn configure(program: &str, arguments: &[&str]) -> Result<(), Unconfigured> {
    let output = Command::new(program).args(arguments).output().map_err(of_process);
    let output = output.map_err(|error| Unconfigured::Program { name: program.to_owned(), error })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Unconfigured::Refused { command: format!("{program} {}", arguments.join(" ")), said })
}

/// Limits what an interface sends to so many bits a second, by a token bucket filter.
///
/// # Errors
/// As [`configure`].
pub fn limit(interface: &str, bits_per_second: u64) -> Result<(), Unconfigured> {
    let burst = (bits_per_second / 8 / BURSTS_PER_SECOND).max(LEAST_BURST).to_string();
    let limits = ["rate", &format!("{bits_per_second}bit"), "burst", &burst, "latency", LATENCY];
    configure("tc", &[&["qdisc", "add", "dev", interface, "root", "tbf"][..], &limits].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_told_apart_from_one_that_refuses() {
        let absent = configure("no-such-program-of-iproute", &[]);
        assert!(matches!(absent, Err(Unconfigured::Program { name, .. }) if name == "no-such-program-of-iproute"));
        let refused = configure("sh", &["-c", "echo no >&2; exit 1"]);
        assert!(matches!(refused, Err(Unconfigured::Refused { said, .. }) if said == "no"));
    }
}
