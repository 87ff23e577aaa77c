//! Which CPUs a run uses.

use kelvin_model::Machine;

use crate::fault::Fault;

/// The CPU that single-CPU probes run on, and the second one of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where single-CPU probes run.
    pub cpu: u32,
    /// The other end of pairs.
    pub peer: Option<u32>,
}

/// Chooses from the allowed CPUs: the last one, away from CPU 0 on which most interrupts land, and as its peer one on
/// another core if there is one.
///
/// # Errors
/// A wish that is not among the allowed CPUs.
pub fn choose(machine: &Machine, allowed: &[u32], wish: Option<u32>) -> Result<Placement, Fault> {
    let cpu = match wish {
        Some(cpu) if allowed.contains(&cpu) => cpu,
        Some(cpu) => {
            let list = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            return Err(Fault::because(format!("--cpu {cpu}: this process may use only CPUs {list}")));
        }
        None => *allowed.last().ok_or_else(|| Fault::because("this process may use no CPU at all"))?,
    };
    let same_core = |other: u32| {
        let cores = machine.topology.siblings.get();
        cores.is_some_and(|cores| cores.iter().any(|core| core.contains(&cpu) && core.contains(&other)))
    };
    let others = || allowed.iter().copied().filter(|&other| other != cpu);
    let peer = others().rev().find(|&other| !same_core(other)).or_else(|| others().next_back());
    Ok(Placement { cpu, peer })
}
