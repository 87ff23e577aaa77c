//! Running one round of one probe in a fresh process.

use std::ffi::OsString;
use std::time::Instant;

use kelvin_model::Attempt;
use kelvin_sys::child::{End, Guarded, Patience};

use crate::protocol::{Answer, Request, unframe};

/// Runs rounds: real processes, or a script in tests.
pub(crate) trait Launch {
    /// Runs a round; `None` if this process was asked to stop meanwhile.
    fn launch(&mut self, request: &Request, patience: Patience) -> Option<Answer>;
    /// Nanoseconds since the run began.
    fn now(&self) -> f64;
}

/// Maximum bytes of readings per round.
const MOST_BYTES: usize = 32 << 20;
/// Maximum bytes of padding in a round's environment, which moves the start of its stack.
const MOST_PADDING: u64 = 4096;

/// Re-executes this program in its hidden probe role for each round.
pub(crate) struct Processes {
    pub program: OsString,
    pub arguments: Vec<String>,
    pub began: u64,
}

impl Launch for Processes {
    fn launch(&mut self, request: &Request, patience: Patience) -> Option<Answer> {
        match self.run(request, patience) {
            Ok(answer) => answer,
            Err(error) => Some(Attempt::Failed(error).into()),
        }
    }

    fn now(&self) -> f64 {
        (kelvin_sys::clock::monotonic() - self.began) as f64
    }
}

impl Processes {
    fn run(&self, request: &Request, patience: Patience) -> Result<Option<Answer>, String> {
        let text = serde_json::to_vec(request).map_err(|error| format!("cannot write the request: {error}"))?;
        let padding = "x".repeat((request.seed % MOST_PADDING) as usize);
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        // A backtrace would bury the panic message.
        let own = [("KELVIN_PADDING", padding.as_str()), ("RUST_BACKTRACE", "0")];
        let asked = request.setup.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment = asked.chain(own);
        let mut child = Guarded::spawn(&self.program, &arguments, environment)
            .map_err(|error| format!("cannot start a process for it: {error}"))?;
        let begun = Instant::now();
        child.give(&text);
        let ending = child.wait(patience, MOST_BYTES).map_err(|error| error.to_string())?;
        let complaint = in_one_line(&ending.complaint);
        match ending.end {
            End::Interrupted => Ok(None),
            End::TimedOut => {
                Err(format!("it was still running after {:.0} s and was killed", begun.elapsed().as_secs_f64()))
            }
            End::TooMuchOutput => Err(format!("it printed more than {} MiB and was killed", MOST_BYTES >> 20)),
            End::Signalled(signal) => Err(format!("it crashed by signal {signal}{complaint}")),
            End::Exited(0) => unframe(&ending.output).map(Some),
            End::Exited(status) => Err(format!("it exited with status {status}{complaint}")),
        }
    }
}

/// A process's error output as the end of a sentence; empty if it was silent.
fn in_one_line(complaint: &str) -> String {
    let words: Vec<&str> = complaint.split_whitespace().collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_output_ends_a_sentence_in_one_line() {
        assert_eq!(
            in_one_line("thread 'main' panicked at a.rs:1:2:\non purpose\n"),
            ": thread 'main' panicked at a.rs:1:2: on purpose"
        );
        assert_eq!(in_one_line(" \n"), "");
    }
}
