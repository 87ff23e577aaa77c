//! Runs one probe once: reads a request on standard input and answers on standard output.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match kelvin_harness::run_probe_process(&kelvin_probes::all()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // Nothing is left to do if even standard error is gone.
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::from(2)
        }
    }
}
