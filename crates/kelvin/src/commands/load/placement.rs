//! Where the generator's threads run: each on a CPU of its own, if the server is on the same host.

use std::fmt;

use kelvin_core::{cpu_ranges, numbered_cpus};
use kelvin_http::load::{GeneratorThreads, ServerEndpoint};
use kelvin_sys::cpu::{affinity, pin};

use crate::cli::LoadArgs;
use crate::cli_error::{CliError, Context};
use crate::placement::check_allowed_cpu;

/// Where the generator's threads run, and why there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeneratorPlacement {
    /// Where the system places them, of this many CPUs.
    Anywhere { allowed: usize },
    /// On a CPU each, as it was asked for, of this many.
    Requested { cpus: Vec<u32>, allowed: usize },
    /// On a CPU each: the server is here, and may have the other CPUs.
    SeparateCpus { cpus: Vec<u32>, server_cpus: Vec<u32> },
    /// Where the system places them: the server is here, and there are no more of these CPUs than threads.
    SharedCpus(Vec<u32>),
}

impl GeneratorPlacement {
    /// Places the calling thread, and so those that it starts, on the CPUs of the generator.
    pub fn choose(args: &LoadArgs, peer: &ServerEndpoint) -> Result<Self, CliError> {
        let allowed = affinity()?;
        let placement = if !args.cpu.is_empty() {
            Self::Requested { cpus: requested_cpus(args, &allowed)?, allowed: allowed.len() }
        } else if args.no_pin || !peer.is_local() {
            Self::Anywhere { allowed: allowed.len() }
        } else {
            Self::with_local_server(&allowed, args.thread_count() as usize)
                .context(format_args!("{}", args.thread_option()))?
        };
        match &placement {
            Self::Requested { cpus, .. } => pin(cpus).context(args.cpu_option())?,
            Self::SeparateCpus { cpus, .. } => pin(cpus)?,
            Self::Anywhere { .. } | Self::SharedCpus(_) => {}
        }
        Ok(placement)
    }

    /// With a server on this host: on the last of the CPUs that are allowed, since interrupts are more often taken by the first.
    fn with_local_server(allowed: &[u32], threads: usize) -> Result<Self, String> {
        match allowed.len().checked_sub(threads) {
            None => Err(format!(
                "with the server on this host each thread has a CPU of its own, and {} of them may be used ({}): give at most {0}, or --no-pin",
                allowed.len(),
                cpu_ranges(allowed)
            )),
            Some(0) => Ok(Self::SharedCpus(allowed.to_vec())),
            Some(server_cpus) => Ok(Self::SeparateCpus {
                cpus: allowed[server_cpus..].to_vec(),
                server_cpus: allowed[..server_cpus].to_vec(),
            }),
        }
    }

    /// This many threads, placed so.
    pub fn threads(&self, count: u32) -> GeneratorThreads {
        match self {
            Self::Anywhere { .. } | Self::SharedCpus(_) => GeneratorThreads::Unpinned(count),
            Self::Requested { cpus, .. } | Self::SeparateCpus { cpus, .. } => GeneratorThreads::Pinned(cpus.clone()),
        }
    }

    /// Threads that could have a CPU each, and leave one to a server on this host.
    pub fn max_threads(&self) -> usize {
        match self {
            Self::Anywhere { allowed } | Self::Requested { allowed, .. } => *allowed,
            Self::SeparateCpus { cpus, server_cpus } => cpus.len() + server_cpus.len() - 1,
            Self::SharedCpus(cpus) => cpus.len(),
        }
    }
}

/// The CPUs that were asked for: one for each thread.
fn requested_cpus(args: &LoadArgs, allowed: &[u32]) -> Result<Vec<u32>, CliError> {
    let (cpus, threads) = (&args.cpu, args.thread_count() as usize);
    for (number, &cpu) in cpus.iter().enumerate() {
        check_allowed_cpu(cpu, allowed)?;
        if cpus[..number].contains(&cpu) {
            bail!("{}: CPU {cpu} is named twice: name each thread's own", args.cpu_option());
        }
    }
    if cpus.len() != threads {
        let (option, count) = (args.cpu_option(), cpus.len());
        bail!("{option}: there is a CPU for each thread: give --threads {count}, or name {threads}");
    }
    Ok(cpus.clone())
}

impl fmt::Display for GeneratorPlacement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anywhere { .. } => write!(out, "it ran where the system placed it"),
            Self::Requested { cpus, .. } => write!(out, "it ran on {}", numbered_cpus(cpus)),
            Self::SeparateCpus { cpus, server_cpus } => {
                let ranges = cpu_ranges(server_cpus);
                write!(
                    out,
                    "it kept to {}, because the server is on this host: keep the server to CPU {ranges} \
                     (taskset -a -p -c {ranges} PID)",
                    numbered_cpus(cpus)
                )
            }
            Self::SharedCpus(cpus) => write!(
                out,
                "the server is on this host and only {} {} allowed to the generator: they may take CPU time from each other",
                numbered_cpus(cpus),
                if cpus.len() == 1 { "is" } else { "are" }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_last_allowed_cpus() {
        const ALLOWED: &[u32] = &[0, 1, 2, 5, 9];
        let placement = |threads| GeneratorPlacement::with_local_server(ALLOWED, threads).unwrap();
        let separate = |server_cpus: usize| GeneratorPlacement::SeparateCpus {
            cpus: ALLOWED[server_cpus..].to_vec(),
            server_cpus: ALLOWED[..server_cpus].to_vec(),
        };
        assert_eq!((1..=4).map(placement).collect::<Vec<_>>(), [4, 3, 2, 1].map(separate));
        assert_eq!(placement(5), GeneratorPlacement::SharedCpus(ALLOWED.to_vec()));
        assert_eq!(placement(2).threads(2), GeneratorThreads::Pinned(vec![5, 9]));
        assert_eq!(placement(5).threads(5), GeneratorThreads::Unpinned(5));
        let error = GeneratorPlacement::with_local_server(&[0, 1], 3).unwrap_err();
        assert!(error.ends_with("and 2 of them may be used (0-1): give at most 2, or --no-pin"), "{error}");
        assert_eq!(GeneratorPlacement::with_local_server(&[3], 1).unwrap(), GeneratorPlacement::SharedCpus(vec![3]));
    }

    #[test]
    fn placement_names_the_cpus() {
        let sentence =
            |allowed: &[u32], threads| GeneratorPlacement::with_local_server(allowed, threads).unwrap().to_string();
        let one = sentence(&[0, 1, 2, 5, 9], 1);
        assert!(one.contains("kept to CPU 9,") && one.contains("taskset -a -p -c 0-2,5 PID"), "{one}");
        let two = sentence(&[0, 1, 2, 3], 2);
        assert!(two.contains("kept to CPUs 2-3,") && two.contains("taskset -a -p -c 0-1 PID"), "{two}");
        assert!(sentence(&[3], 1).contains("only CPU 3 is allowed"));
        assert!(sentence(&[0, 1], 2).contains("only CPUs 0-1 are allowed"));
        let requested = GeneratorPlacement::Requested { cpus: vec![4, 2], allowed: 8 };
        assert_eq!(requested.to_string(), "it ran on CPUs 2,4");
        assert_eq!([cpu_ranges(&[4]), cpu_ranges(&[0, 1]), cpu_ranges(&[0, 2, 3, 4])], ["4", "0-1", "0,2-4"]);
    }
}
