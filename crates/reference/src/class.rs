//! What machines must share for their figures to be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kelvin_core::{IndirectSort, Name};

use crate::library::ReferenceLibrary;
use crate::machine::{LibraryMachine, MachineKind, Virtualisation};
use crate::mitigation::ActiveMitigation;

/// What a metric's figures depend on, by the first part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricArea {
    /// `cpu` and `mem`: the hardware.
    Hardware,
    /// All others: the hardware and what the kernel adds to each entry.
    Kernel,
}

impl MetricArea {
    /// The area of a metric.
    pub fn from_metric(metric: Name) -> Self {
        match metric.as_str().split('.').next() {
            Some("cpu" | "mem") => Self::Hardware,
            _ => Self::Kernel,
        }
    }
}

/// A class of machines: the generation of the core, what the machine is built as, whether it is a guest, and, where the kernel's part
/// of a figure matters, the mitigations.
///
/// The kind of memory is not in it: it goes with the generation of a server's core, and most sources state none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineClass {
    /// Generation of the core.
    pub core: Name,
    /// What it is built as.
    pub kind: MachineKind,
    /// Whether it is a guest.
    pub instance: Virtualisation,
    /// Mitigations, for [`MetricArea::Kernel`]: `None` where they are not known.
    pub mitigations: Option<BTreeSet<ActiveMitigation>>,
    /// The area.
    pub area: MetricArea,
}

impl MachineClass {
    /// The class of a machine for metrics of an area.
    pub fn from_machine(machine: &LibraryMachine, area: MetricArea) -> Self {
        let mitigations = match area {
            MetricArea::Hardware => None,
            MetricArea::Kernel => machine.mitigations.clone(),
        };
        Self { core: machine.core, kind: machine.kind, instance: machine.instance, mitigations, area }
    }

    /// Whether a machine is one of the class.
    pub fn contains(&self, machine: &LibraryMachine) -> bool {
        Self::from_machine(machine, self.area) == *self
    }

    /// Its members in a sentence: `Zen 4 guests`, `Zen 3 laptops`, of the kernel's area `Zen 4 guests with the same mitigations`.
    pub fn plural(&self) -> String {
        let Self { core, kind, .. } = self;
        let machines = match (self.instance, kind) {
            (Virtualisation::Guest, MachineKind::Server) => format!("{core} guests"),
            (Virtualisation::Guest, kind) => format!("{core} guests on a {kind}"),
            (Virtualisation::BareMetal | Virtualisation::NotStated, kind) => format!("{core} {kind}s"),
        };
        match &self.mitigations {
            Some(_) => format!("{machines} with the same mitigations"),
            None => machines,
        }
    }

    /// Whether a machine is of the wider class that this one leans on where it has few members: the same kind of machine, guest or not.
    pub fn is_related(&self, machine: &LibraryMachine) -> bool {
        machine.kind == self.kind && machine.instance == self.instance
    }
}

impl ReferenceLibrary {
    /// All classes of an area with their members, largest first.
    pub fn classes(&self, area: MetricArea) -> Vec<(MachineClass, Vec<&LibraryMachine>)> {
        let mut classes: BTreeMap<MachineClass, Vec<&LibraryMachine>> = BTreeMap::new();
        for machine in self.machines() {
            if machine.rows.iter().any(|row| MetricArea::from_metric(row.metric) == area) {
                classes.entry(MachineClass::from_machine(machine, area)).or_default().push(machine);
            }
        }
        let mut classes: Vec<_> = classes.into_iter().collect();
        classes.indirect_sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
        classes
    }
}

impl fmt::Display for MachineClass {
    /// `Zen 4, server, guest`, and for the kernel's area its mitigations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.core, self.kind, self.instance)?;
        match (&self.mitigations, self.area) {
            (_, MetricArea::Hardware) => Ok(()),
            (None, MetricArea::Kernel) => f.write_str(", mitigations not stated"),
            (Some(active), MetricArea::Kernel) if active.is_empty() => f.write_str(", no mitigations"),
            (Some(active), MetricArea::Kernel) => {
                let names: Vec<String> = active.iter().map(ActiveMitigation::to_string).collect();
                write!(f, ", {}", names.join(", "))
            }
        }
    }
}
