//! The machine that a run is made on, and which of its CPUs it uses.

use std::path::Path;
use std::time::Instant;

use kelvin_harness::Placement;
use kelvin_model::Machine;

use crate::fault::Fault;

/// The machine that a run is made on, read once.
#[derive(Clone)]
pub struct Here {
    /// When it began to be read: the time of a run counts from then.
    pub began: Instant,
    /// Facts.
    pub machine: Machine,
    /// CPUs that this process may use.
    pub allowed: Vec<u32>,
}

impl Here {
    /// Reads this machine.
    ///
    /// # Errors
    /// If the kernel does not say which CPUs may be used.
    pub fn read() -> Result<Self, Fault> {
        let began = Instant::now();
        let allowed =
            kelvin_sys::cpu::allowed().map_err(|error| Fault::new("cannot tell which CPUs may be used", error))?;
        Ok(Self { began, machine: kelvin_machine::read(Path::new("/")), allowed })
    }

    /// Chooses from the allowed CPUs: the last one, away from CPU 0 on which most interrupts land, and as its partner one on
    /// another core if there is one.
    ///
    /// # Errors
    /// A wanted CPU that is not allowed.
    pub fn placement(&self, wish: Option<u32>) -> Result<Placement, Fault> {
        let allowed = &self.allowed;
        let cpu = match wish {
            Some(cpu) if allowed.contains(&cpu) => cpu,
            Some(cpu) => {
                let list = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
                return Err(Fault::because(format!("--cpu {cpu}: not allowed; this process may use CPUs {list}")));
            }
            None => *allowed.last().ok_or_else(|| Fault::because("this process may use no CPU at all"))?,
        };
        Ok(placement(&self.machine, allowed, cpu))
    }
}

/// The placement on one of the allowed CPUs: its partner is on another core if there is one.
pub fn placement(machine: &Machine, allowed: &[u32], cpu: u32) -> Placement {
    let same_core = |other: u32| {
        let cores = machine.topology.siblings.get();
        cores.is_some_and(|cores| cores.iter().any(|core| core.contains(&cpu) && core.contains(&other)))
    };
    let others = || allowed.iter().copied().filter(|&other| other != cpu);
    let partner = others().rev().find(|&other| !same_core(other)).or_else(|| others().next_back());
    Placement { cpu, partner, allowed: allowed.to_vec() }
}
