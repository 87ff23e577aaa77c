//! What machines must share for their figures to be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kelvin_model::Name;

use crate::library::Library;
use crate::machine::{Instance, Machine, MachineKind};
use crate::mitigation::Mitigation;

/// What a metric's figures depend on, by the first part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// `cpu` and `mem`: the hardware.
    Hardware,
    /// All others: the hardware and what the kernel adds to each entry.
    Kernel,
}

impl Area {
    /// The area of a metric.
    pub fn of(metric: Name) -> Self {
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
pub struct Class {
    /// Generation of the core.
    pub core: Name,
    /// What it is built as.
    pub kind: MachineKind,
    /// Whether it is a guest.
    pub instance: Instance,
    /// Mitigations, for [`Area::Kernel`]: `None` where they are not known.
    pub mitigations: Option<BTreeSet<Mitigation>>,
    /// The area.
    pub area: Area,
}

impl Class {
    /// The class of a machine for metrics of an area.
    pub fn of(machine: &Machine, area: Area) -> Self {
        let mitigations = match area {
            Area::Hardware => None,
            Area::Kernel => machine.mitigations.clone(),
        };
        Self { core: machine.core, kind: machine.kind, instance: machine.instance, mitigations, area }
    }

    /// Whether a machine is one of the class.
    pub fn has(&self, machine: &Machine) -> bool {
        Self::of(machine, self.area) == *self
    }

    /// Its members in a sentence: `Zen 4 guests`, `Zen 3 laptops`, of the kernel's area `Zen 4 guests with the same mitigations`.
    pub fn plural(&self) -> String {
        let Self { core, kind, .. } = self;
        let machines = match (self.instance, kind) {
            (Instance::Guest, MachineKind::Server) => format!("{core} guests"),
            (Instance::Guest, kind) => format!("{core} guests on a {kind}"),
            (Instance::BareMetal | Instance::NotStated, kind) => format!("{core} {kind}s"),
        };
        match &self.mitigations {
            Some(_) => format!("{machines} with the same mitigations"),
            None => machines,
        }
    }

    /// Whether a machine is of the wider class that this one leans on where it has few members: the same kind of machine, guest or not.
    pub fn is_akin(&self, machine: &Machine) -> bool {
        machine.kind == self.kind && machine.instance == self.instance
    }
}

impl Library {
    /// All classes of an area with their members, largest first.
    pub fn classes(&self, area: Area) -> Vec<(Class, Vec<&Machine>)> {
        let mut classes: BTreeMap<Class, Vec<&Machine>> = BTreeMap::new();
        for machine in self.machines() {
            if machine.rows.iter().any(|row| Area::of(row.metric) == area) {
                classes.entry(Class::of(machine, area)).or_default().push(machine);
            }
        }
        let mut classes: Vec<_> = classes.into_iter().collect();
        classes.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
        classes
    }
}

impl fmt::Display for Class {
    /// `Zen 4, server, guest`, and for the kernel's area its mitigations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.core, self.kind, self.instance)?;
        match (&self.mitigations, self.area) {
            (_, Area::Hardware) => Ok(()),
            (None, Area::Kernel) => f.write_str(", mitigations not stated"),
            (Some(none), Area::Kernel) if none.is_empty() => f.write_str(", no mitigations"),
            (Some(some), Area::Kernel) => {
                let names: Vec<String> = some.iter().map(Mitigation::to_string).collect();
                write!(f, ", {}", names.join(", "))
            }
        }
    }
}
