//! The machine that a run is made on, and which of its CPUs it uses.

use std::path::Path;
use std::time::{Duration, Instant};

use kelvin_core::{Hazard, Machine};
use kelvin_harness::{Placement, max_sampled_cpus, undisturbed_shares};

use crate::cli_error::{CliError, Context};

/// The machine that a run is made on, read once.
#[derive(Clone)]
pub struct LocalMachine {
    /// When it began to be read: the time of a run counts from then.
    pub began: Instant,
    /// Facts.
    pub machine: Machine,
    /// CPUs that this process may use.
    pub allowed: Vec<u32>,
}

impl LocalMachine {
    /// Reads this machine.
    ///
    /// # Errors
    /// If the kernel does not say which CPUs may be used.
    pub fn read() -> Result<Self, CliError> {
        let began = Instant::now();
        let allowed = kelvin_sys::cpu::allowed().context("cannot tell which CPUs may be used")?;
        Ok(Self { began, machine: kelvin_machine::read(Path::new("/")), allowed })
    }

    /// Chooses from the allowed CPUs: the last one, away from CPU 0 on which most interrupts land, and as its partner one on
    /// another core if there is one.
    ///
    /// # Errors
    /// A wanted CPU that is not allowed.
    pub fn placement(&self, cpu: Option<u32>) -> Result<Placement, CliError> {
        let allowed = &self.allowed;
        let cpu = match cpu {
            Some(cpu) => check_allowed_cpu(cpu, allowed)?,
            None => *allowed.last().ok_or_else(|| CliError::msg("this process may use no CPU at all"))?,
        };
        Ok(placement_on(&self.machine, allowed, cpu))
    }

    /// Like `placement`, where no CPU is wanted and others of its kind are left alone more, by a look at them that takes at most so long; with
    /// what it shows of the neighbours.
    ///
    /// # Errors
    /// A CPU that cannot be used.
    pub fn quiet_placement(&self, limit: Duration) -> Result<(Placement, Option<Hazard>), CliError> {
        let usual = self.placement(None)?;
        // As in the usual choice, not where most interrupts land.
        let away: Vec<u32> = self.allowed.iter().copied().filter(|&cpu| cpu > 0 || cpu == usual.cpu).collect();
        let alike = kelvin_machine::similar_cpus(Path::new("/"), &away, usual.cpu);
        // Of many CPUs in a short time some are looked at, and not none.
        let alike = evenly_spaced(&alike, MAX_SAMPLED_CPUS.min(max_sampled_cpus(limit)).max(1));
        let shares = undisturbed_shares(&alike, limit).context("cannot look at the CPUs that may be used")?;
        let Some(shares) = shares else {
            let why = match max_sampled_cpus(limit) {
                0 => "the run is too short",
                _ => "no state of the CPUs was steady",
            };
            let hazard = kelvin_machine::siblings_not_sampled(usual.cpu, why);
            return Ok((usual, Some(hazard)));
        };
        let shares: Vec<(u32, f64)> = alike.into_iter().zip(shares).collect();
        let cpu = quietest_cpu(&shares, usual.cpu);
        let mut placement = placement_on(&self.machine, &self.allowed, cpu);
        placement.partner = placement.partner.map(|partner| {
            let is_elsewhere = |other| other != cpu && !is_same_core(&self.machine, cpu, other);
            let others: Vec<_> = shares.iter().copied().filter(|&(other, _)| is_elsewhere(other)).collect();
            quietest_cpu(&others, partner)
        });
        let (own, others): (Vec<_>, Vec<_>) = shares.into_iter().partition(|&(other, _)| other == cpu);
        Ok((placement, kelvin_machine::busy_siblings(&[own, others].concat())))
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
fn quietest_cpu(shares: &[(u32, f64)], usual: u32) -> u32 {
    let Some(&(_, own)) = shares.iter().find(|&&(cpu, _)| cpu == usual) else { return usual };
    let best = shares.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    best.filter(|&(_, share)| own < ACCEPTABLE_QUIET_SHARE && share >= own + MIN_QUIET_GAIN)
        .map_or(usual, |(cpu, _)| cpu)
}

/// Whether two CPUs are of one core.
fn is_same_core(machine: &Machine, one: u32, other: u32) -> bool {
    let cores = machine.topology.siblings.get();
    cores.is_some_and(|cores| cores.iter().any(|core| core.contains(&one) && core.contains(&other)))
}

/// The placement on one of the allowed CPUs: its partner is on another core if there is one.
pub fn placement_on(machine: &Machine, allowed: &[u32], cpu: u32) -> Placement {
    let others = || allowed.iter().copied().filter(|&other| other != cpu);
    let partner = others().rev().find(|&other| !is_same_core(machine, cpu, other)).or_else(|| others().next_back());
    Placement { cpu, partner, allowed: allowed.to_vec() }
}

/// A CPU that `--cpu` names, if this process may use it.
///
/// # Errors
/// It may not.
pub fn check_allowed_cpu(cpu: u32, allowed: &[u32]) -> Result<u32, CliError> {
    if allowed.contains(&cpu) {
        return Ok(cpu);
    }
    let list = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    bail!("--cpu {cpu}: not allowed; this process may use CPUs {list}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_default_cpu_is_replaced_by_quiet_one() {
        assert_eq!(quietest_cpu(&[(0, 1.0), (1, 0.98)], 1), 1, "both are good enough");
        assert_eq!(quietest_cpu(&[(6, 0.3), (7, 0.47), (15, 0.09)], 15), 7);
        assert_eq!(quietest_cpu(&[(7, 0.25), (15, 0.09)], 15), 15, "not worth a change");
        assert_eq!(quietest_cpu(&[(7, 1.0)], 15), 15, "it was not looked at");
        assert_eq!(quietest_cpu(&[], 15), 15);
    }

    #[test]
    fn skipped_cpu_sampling_is_reported() {
        let here = LocalMachine::read().unwrap();
        let (placement, hazard) = here.quiet_placement(Duration::from_millis(1)).unwrap();
        assert_eq!(placement, here.placement(None).unwrap());
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
        let many: Vec<u32> = (0..64).collect();
        let some = evenly_spaced(&many, 16);
        assert_eq!((some.len(), some.last(), some.first()), (16, Some(&63), Some(&3)));
    }
}
