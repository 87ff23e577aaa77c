//! Where the generator runs: on a CPU of its own, if the server is on the same host.

use std::fmt;

use kelvin_load::Peer;
use kelvin_sys::cpu::{allowed, pin};

use crate::cli::LoadArgs;
use crate::fault::Fault;
use crate::place::may_use;

/// Where the generator runs, and why there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Where the system places it.
    Anywhere,
    /// Where it was asked to be.
    Asked(u32),
    /// The server is here, and may have the other CPUs.
    Apart { cpu: u32, others: Vec<u32> },
    /// The server is here, and the generator may have one CPU only.
    Alone(u32),
}

impl Placement {
    /// Places the calling thread.
    pub fn of(args: &LoadArgs, peer: &Peer) -> Result<Self, Fault> {
        let place = match args.cpu {
            Some(cpu) => Self::Asked(may_use(cpu, &allowed()?)?),
            None if args.no_pin || !peer.is_here() => Self::Anywhere,
            None => Self::beside(&allowed()?),
        };
        match place {
            Self::Asked(cpu) => pin(&[cpu]).map_err(|error| Fault::new(format!("--cpu {cpu}"), error))?,
            Self::Apart { cpu, .. } => pin(&[cpu])?,
            Self::Anywhere | Self::Alone(_) => {}
        }
        Ok(place)
    }

    /// Beside a server on this host: on the last of the CPUs that are allowed, since interrupts are more often taken by the first.
    fn beside(allowed: &[u32]) -> Self {
        match allowed {
            [] => Self::Anywhere,
            &[cpu] => Self::Alone(cpu),
            [others @ .., cpu] => Self::Apart { cpu: *cpu, others: others.to_vec() },
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anywhere => write!(out, "it ran where the system placed it"),
            Self::Asked(cpu) => write!(out, "it ran on CPU {cpu}"),
            Self::Apart { cpu, others } => {
                let others = list(others);
                write!(
                    out,
                    "it kept to CPU {cpu}, because the server is on this host: keep the server to CPU {others} \
                     (taskset -a -p -c {others} PID)"
                )
            }
            Self::Alone(cpu) => write!(
                out,
                "the server is on this host and only CPU {cpu} is allowed to the generator: they may take CPU time from each other"
            ),
        }
    }
}

/// CPUs in ascending order as `taskset -c` takes them, such as 0-2,5.
fn list(cpus: &[u32]) -> String {
    let ranges = cpus.chunk_by(|one, next| one + 1 == *next);
    let ranges = ranges.map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        _ => range[0].to_string(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_allowed_cpu_is_the_generators_and_the_others_are_named() {
        assert_eq!(Placement::beside(&[0, 1, 2, 5, 9]), Placement::Apart { cpu: 9, others: vec![0, 1, 2, 5] });
        assert_eq!(Placement::beside(&[3]), Placement::Alone(3));
        let said = Placement::beside(&[0, 1, 2, 5, 9]).to_string();
        assert!(said.contains("kept to CPU 9") && said.contains("taskset -a -p -c 0-2,5 PID"), "{said}");
        assert_eq!([list(&[4]), list(&[0, 1]), list(&[0, 2, 3, 4])], ["4", "0-1", "0,2-4"]);
    }
}
