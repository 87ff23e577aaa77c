//! The machine that a run is made on, and which of its CPUs it uses.

use std::path::Path;
use std::time::{Duration, Instant};

use kelvin_core::{Hazard, Machine, SharedLevel};
use kelvin_harness::{Placement, max_sampled_cpus, undisturbed_shares};
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::cli_error::{CliError, Context};

/// The machine that a run is made on, read once.
#[derive(Clone)]
pub struct LocalMachine {
    /// When it began to be read: the time of a run counts from then.
    pub start: Instant,
    /// Facts.
    pub machine: Machine,
    /// CPUs that this process may use.
    pub allowed: Vec<u32>,
}

impl LocalMachine {
    /// Reads this machine, with the facts of the CPU that is measured: this one, or else the one that is chosen by default.
    ///
    /// # Errors
    /// If the kernel does not report which CPUs may be used.
    pub fn read(cpu: Option<u32>) -> Result<Self, CliError> {
        let start = Instant::now();
        let allowed = kelvin_sys::cpu::affinity().context("cannot read which CPUs may be used")?;
        let cpu = cpu.filter(|cpu| allowed.contains(cpu));
        Ok(Self { start, machine: kelvin_machine::read_for_cpu(Path::new("/"), cpu), allowed })
    }

    /// Chooses from the allowed CPUs: the last one of the fastest kind of core, away from CPU 0 on which most interrupts land, and as its
    /// partner one on another core, as near as there is.
    ///
    /// # Errors
    /// A wanted CPU that is not allowed.
    pub fn placement(&self, cpu: Option<u32>) -> Result<Placement, CliError> {
        let allowed = &self.allowed;
        let cpu = match cpu {
            Some(cpu) => check_allowed_cpu(cpu, allowed)?,
            None => {
                let default = self.machine.topology.default_cpu(allowed);
                default.ok_or_else(|| CliError::msg("this process may use no CPU at all"))?
            }
        };
        Ok(placement_on(&self.machine, allowed, cpu))
    }

    /// Like `placement` without a requested CPU: samples similar CPUs for at most `limit`, and prefers one that is left alone more.
    /// Returns the neighbours' interference too.
    ///
    /// # Errors
    /// A CPU that cannot be used.
    pub fn quiet_placement(&self, limit: Duration) -> Result<(Placement, Option<Hazard>), CliError> {
        let default_placement = self.placement(None)?;
        // As in the usual choice, not where most interrupts land.
        let candidates: Vec<u32> =
            self.allowed.iter().copied().filter(|&cpu| cpu > 0 || cpu == default_placement.cpu).collect();
        let similar = kelvin_machine::similar_cpus(Path::new("/"), &candidates, default_placement.cpu);
        // Of many CPUs in a short time some are looked at, and not none.
        let sampled = evenly_spaced(&similar, MAX_SAMPLED_CPUS.min(max_sampled_cpus(limit)).max(1));
        let shares = undisturbed_shares(&sampled, limit).context("cannot examine the CPUs that may be used")?;
        let Some(shares) = shares else {
            let reason = match max_sampled_cpus(limit) {
                0 => "the run is too short",
                _ => "no state of the CPUs was steady",
            };
            let hazard = kelvin_machine::siblings_not_sampled(default_placement.cpu, reason);
            return Ok((default_placement, Some(hazard)));
        };
        let shares: Vec<(u32, f64)> = sampled.into_iter().zip(shares).collect();
        let cpu = quietest_cpu(&shares, default_placement.cpu);
        let mut placement = placement_on(&self.machine, &self.allowed, cpu);
        placement.partner = placement.partner.map(|partner| {
            let shared_level = |other_cpu| self.machine.topology.shared_level(cpu, other_cpu);
            let is_elsewhere = |other_cpu| other_cpu != cpu && shared_level(other_cpu) != Some(SharedLevel::Core);
            let other_shares: Vec<_> =
                shares.iter().copied().filter(|&(other_cpu, _)| is_elsewhere(other_cpu)).collect();
            quietest_cpu(&other_shares, partner)
        });
        let (chosen, rest): (Vec<_>, Vec<_>) = shares.into_iter().partition(|&(sampled_cpu, _)| sampled_cpu == cpu);
        Ok((placement, kelvin_machine::busy_siblings(&[chosen, rest].concat())))
    }
}

/// CPUs that are looked at: more would take longer than a choice is worth.
const MAX_SAMPLED_CPUS: usize = 16;
/// A CPU that is left alone for more than this share of the time is good enough; another is chosen instead of it only where it is for
/// so much more.
const ACCEPTABLE_QUIET_SHARE: f64 = 0.5;
const MIN_QUIET_GAIN: f64 = 0.2;

/// The last of these CPUs and others evenly spread among them, this many at most.
fn evenly_spaced(cpus: &[u32], max: usize) -> Vec<u32> {
    let step = cpus.len().div_ceil(max).max(1);
    let first = cpus.len().saturating_sub(1) % step;
    cpus.iter().skip(first).copied().step_by(step).collect()
}

/// The CPU that is left alone most of those looked at, if the usual one is not good enough.
fn quietest_cpu(shares: &[(u32, f64)], default_cpu: u32) -> u32 {
    let Some(&(_, default_share)) = shares.iter().find(|&&(cpu, _)| cpu == default_cpu) else { return default_cpu };
    let best = shares.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    best.filter(|&(_, share)| default_share < ACCEPTABLE_QUIET_SHARE && share >= default_share + MIN_QUIET_GAIN)
        .map_or(default_cpu, |(cpu, _)| cpu)
}

/// The placement on one of the allowed CPUs, with its partner.
pub fn placement_on(machine: &Machine, allowed: &[u32], cpu: u32) -> Placement {
    Placement { cpu, partner: machine.topology.partner_of(cpu, allowed), allowed: allowed.to_vec() }
}

/// A CPU that `--cpu` names, if this process may use it.
///
/// # Errors
/// It may not.
pub fn check_allowed_cpu(cpu: u32, allowed: &[u32]) -> Result<u32, CliError> {
    if allowed.contains(&cpu) {
        return Ok(cpu);
    }
    bail!("--cpu {cpu}: not allowed; this process may use CPUs {}", kelvin_core::cpu_ranges(allowed))
}

/// That this process may have real-time priority: a thread tries to get it, and ends.
///
/// # Errors
/// What is missing.
pub fn check_realtime() -> Result<(), CliError> {
    let attempt = ThreadBuilder::named("realtime").start(kelvin_sys::cpu::set_realtime_thread)?;
    let result = attempt.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    result.map_err(|error| {
        CliError::new("needs CAP_SYS_NICE, as root has, or a limit that allows it (ulimit -r 1)", error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_default_cpu_is_replaced_by_quiet_cpu() {
        assert_eq!(quietest_cpu(&[(0, 1.0), (1, 0.98)], 1), 1, "both are good enough");
        assert_eq!(quietest_cpu(&[(6, 0.3), (7, 0.47), (15, 0.09)], 15), 7);
        assert_eq!(quietest_cpu(&[(7, 0.25), (15, 0.09)], 15), 15, "not worth a change");
        assert_eq!(quietest_cpu(&[(7, 1.0)], 15), 15, "it was not looked at");
        assert_eq!(quietest_cpu(&[], 15), 15);
    }

    #[test]
    fn skipped_cpu_sampling_is_reported() {
        let local = LocalMachine::read(None).unwrap();
        let (placement, hazard) = local.quiet_placement(Duration::from_millis(1)).unwrap();
        assert_eq!(placement, local.placement(None).unwrap());
        let hazard = hazard.unwrap();
        assert_eq!(
            hazard.summary,
            format!(
                "CPU {} was chosen without sampling the sibling threads of its core: the run is too short",
                placement.cpu
            )
        );
    }

    #[test]
    fn sampled_cpus_are_evenly_spaced() {
        assert_eq!(evenly_spaced(&[0, 1], 16), [0, 1]);
        let cpus: Vec<u32> = (0..64).collect();
        let sampled = evenly_spaced(&cpus, 16);
        assert_eq!((sampled.len(), sampled.last(), sampled.first()), (16, Some(&63), Some(&3)));
    }
}
