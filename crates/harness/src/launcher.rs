//! Running one round of one probe in a fresh process.

use std::ffi::OsString;
use std::time::Instant;

use kelvin_core::RoundOutcome;
use kelvin_sys::child::{ChildEnd, GuardedChild, WaitLimit};

use crate::protocol::{RoundRequest, RoundResponse, decode_response};

/// Runs rounds: real processes, or a script in tests.
pub(crate) trait Launcher {
    /// Runs a round; `None` if this process was asked to stop meanwhile.
    fn launch(&mut self, request: &RoundRequest, patience: WaitLimit) -> Option<RoundResponse>;
    /// Nanoseconds since the run began.
    fn now(&self) -> f64;
}

/// Maximum bytes of readings per round.
const MAX_READING_BYTES: usize = 32 << 20;
/// Maximum bytes of padding in a round's environment, which moves the start of its stack.
const MAX_STACK_PADDING: u64 = 4096;

/// Re-executes this program in its hidden probe role for each round.
pub(crate) struct ProcessLauncher {
    pub program: OsString,
    pub arguments: Vec<String>,
    pub began: u64,
}

impl Launcher for ProcessLauncher {
    fn launch(&mut self, request: &RoundRequest, patience: WaitLimit) -> Option<RoundResponse> {
        match self.run(request, patience) {
            Ok(answer) => answer,
            Err(error) => Some(RoundOutcome::Failed(error).into()),
        }
    }

    fn now(&self) -> f64 {
        (kelvin_sys::clock::monotonic() - self.began) as f64
    }
}

impl ProcessLauncher {
    fn run(&self, request: &RoundRequest, patience: WaitLimit) -> Result<Option<RoundResponse>, String> {
        let text = serde_json::to_vec(request).map_err(|error| format!("cannot write the request: {error}"))?;
        let padding = "x".repeat((request.seed % MAX_STACK_PADDING) as usize);
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        // A backtrace would bury the panic message.
        let own = [("KELVIN_PADDING", padding.as_str()), ("RUST_BACKTRACE", "0")];
        let asked = request.setup.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment = asked.chain(own);
        let mut child = GuardedChild::spawn(&self.program, &arguments, environment)
            .map_err(|error| format!("cannot start a process for it: {error}"))?;
        let begun = Instant::now();
        child.write_stdin(&text);
        let ending = child.wait(patience, MAX_READING_BYTES).map_err(|error| error.to_string())?;
        let complaint = join_lines(&ending.stderr);
        match ending.end {
            ChildEnd::Interrupted => Ok(None),
            ChildEnd::TimedOut => {
                Err(format!("it was still running after {:.0} s and was killed", begun.elapsed().as_secs_f64()))
            }
            ChildEnd::TooMuchOutput => {
                Err(format!("it printed more than {} MiB and was killed", MAX_READING_BYTES >> 20))
            }
            ChildEnd::Signalled(signal) => Err(format!("it crashed by signal {signal}{complaint}")),
            ChildEnd::Exited(0) => decode_response(&ending.output).map(Some),
            ChildEnd::Exited(status) => Err(format!("it exited with status {status}{complaint}")),
        }
    }
}

/// A process's error output as the end of a sentence; empty if it was silent.
fn join_lines(complaint: &str) -> String {
    let words: Vec<&str> = complaint.split_whitespace().collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_output_becomes_one_line() {
        assert_eq!(
            join_lines("thread 'main' panicked at a.rs:1:2:\non purpose\n"),
            ": thread 'main' panicked at a.rs:1:2: on purpose"
        );
        assert_eq!(join_lines(" \n"), "");
    }
}
