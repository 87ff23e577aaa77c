//! Where the generator runs: on a CPU of its own, if the server is on the same host.

use std::fmt;

use kelvin_core::cpu_ranges;
use kelvin_http::load::ServerEndpoint;
use kelvin_sys::cpu::{affinity, pin};

use crate::cli::LoadArgs;
use crate::cli_error::{CliError, Context};
use crate::placement::check_allowed_cpu;

/// Where the generator runs, and why there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeneratorPlacement {
    /// Where the system places it.
    Anywhere,
    /// Where it was asked to be.
    Requested(u32),
    /// The server is here, and may have the other CPUs.
    SeparateCpu { cpu: u32, server_cpus: Vec<u32> },
    /// The server is here, and the generator may have one CPU only.
    OnlyCpu(u32),
}

impl GeneratorPlacement {
    /// Places the calling thread.
    pub fn choose(args: &LoadArgs, peer: &ServerEndpoint) -> Result<Self, CliError> {
        let placement = match args.cpu {
            Some(cpu) => Self::Requested(check_allowed_cpu(cpu, &affinity()?)?),
            None if args.no_pin || !peer.is_local() => Self::Anywhere,
            None => Self::with_local_server(&affinity()?),
        };
        match placement {
            Self::Requested(cpu) => pin(&[cpu]).context(format_args!("--cpu {cpu}"))?,
            Self::SeparateCpu { cpu, .. } => pin(&[cpu])?,
            Self::Anywhere | Self::OnlyCpu(_) => {}
        }
        Ok(placement)
    }

    /// With a server on this host: on the last of the CPUs that are allowed, since interrupts are more often taken by the first.
    fn with_local_server(allowed: &[u32]) -> Self {
        match allowed {
            [] => Self::Anywhere,
            &[cpu] => Self::OnlyCpu(cpu),
            [server_cpus @ .., cpu] => Self::SeparateCpu { cpu: *cpu, server_cpus: server_cpus.to_vec() },
        }
    }
}

impl fmt::Display for GeneratorPlacement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anywhere => write!(out, "it ran where the system placed it"),
            Self::Requested(cpu) => write!(out, "it ran on CPU {cpu}"),
            Self::SeparateCpu { cpu, server_cpus } => {
                let ranges = cpu_ranges(server_cpus);
                write!(
                    out,
                    "it kept to CPU {cpu}, because the server is on this host: keep the server to CPU {ranges} \
                     (taskset -a -p -c {ranges} PID)"
                )
            }
            Self::OnlyCpu(cpu) => write!(
                out,
                "the server is on this host and only CPU {cpu} is allowed to the generator: they may take CPU time from each other"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_takes_last_allowed_cpu() {
        assert_eq!(
            GeneratorPlacement::with_local_server(&[0, 1, 2, 5, 9]),
            GeneratorPlacement::SeparateCpu { cpu: 9, server_cpus: vec![0, 1, 2, 5] }
        );
        assert_eq!(GeneratorPlacement::with_local_server(&[3]), GeneratorPlacement::OnlyCpu(3));
        let sentence = GeneratorPlacement::with_local_server(&[0, 1, 2, 5, 9]).to_string();
        assert!(sentence.contains("kept to CPU 9") && sentence.contains("taskset -a -p -c 0-2,5 PID"), "{sentence}");
        assert_eq!([cpu_ranges(&[4]), cpu_ranges(&[0, 1]), cpu_ranges(&[0, 2, 3, 4])], ["4", "0-1", "0,2-4"]);
    }
}
