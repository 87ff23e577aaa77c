//! The class of a machine by its facts, or why it has none; and a machine of a user's own as a member of it.

use std::collections::BTreeSet;

use kelvin_core::catalogue::ModelContradiction;
use kelvin_core::{Chassis, Machine as Facts, Name};

use crate::area_factor::MachineFigure;
use crate::class::{MachineClass, MetricArea};
use crate::machine::{LibraryMachine, MachineKind, PublishedFigure, PublishedSource, SourceMethod, Virtualisation};
use crate::mitigation::ActiveMitigation;

/// Names of processors that are built for servers.
const SERVER_NAMES: [&str; 4] = ["Xeon", "XEON", "EPYC", "Opteron"];
/// How names of cores begin that are built for servers, and state no name of the processor.
const SERVER_CORES: [&str; 6] = ["Neoverse", "Ampere-1", "TaiShan", "ThunderX", "A64FX", "MONAKA"];
/// Where the product of a machine without DMI is from: boards state theirs there.
const DEVICE_TREE: &str = "/sys/firmware/devicetree/base/model";

impl MachineClass {
    /// The class of a machine by its facts, for metrics of an area.
    ///
    /// # Errors
    ///
    /// Why it has none, in a sentence without its full stop: the core is not known, is emulated, or is none of the stated model; or what it is
    /// built as is not known.
    pub fn from_facts(machine: &Facts, area: MetricArea) -> Result<Self, String> {
        let class = Self::from_own_facts(machine, area)?;
        match ModelContradiction::from_cpu(&machine.cpu) {
            Some(ModelContradiction { claimed, flag, cores }) => Err(format!(
                "it hides its model: it states that of {claimed}, but has the flag {flag}, as only {} have",
                cores.join(", ")
            )),
            None => Ok(class),
        }
    }

    /// The same among a user's own machines: those that hide their model in the same way are of one class.
    ///
    /// # Errors
    ///
    /// As of [`MachineClass::from_facts`], but for a hidden model.
    pub fn from_own_facts(machine: &Facts, area: MetricArea) -> Result<Self, String> {
        let generation = core_generation(machine)?;
        let kind = machine_kind(machine, generation)?;
        let disguised = ModelContradiction::from_cpu(&machine.cpu)
            .map(|contradiction| Name::intern(&format!("{generation} with {}", contradiction.flag)));
        let core = disguised.unwrap_or(generation);
        let mitigations = if area == MetricArea::Kernel { mitigations(machine) } else { None };
        Ok(Self { core, kind, instance: virtualisation(machine), mitigations, area })
    }
}

/// The method of a user's own figures: kelvin's.
const KELVIN_METHOD: SourceMethod =
    SourceMethod { id: Name::new("kelvin"), tool: String::new(), differs: String::new(), factor: 1.02 };

impl LibraryMachine {
    /// A machine of a user's own, by its facts and the figures of a run.
    ///
    /// # Errors
    ///
    /// Why it is of no class, as of [`MachineClass::from_own_facts`].
    pub fn from_own_run(
        run: &str,
        machine: &Facts,
        figures: impl IntoIterator<Item = MachineFigure>,
    ) -> Result<Self, String> {
        let class = MachineClass::from_own_facts(machine, MetricArea::Hardware)?;
        let row = |figure: MachineFigure| PublishedFigure {
            metric: figure.metric,
            case: figure.case,
            value: figure.value,
            method: KELVIN_METHOD,
            published: None,
        };
        let cpu = machine.cpu.model_name.get().cloned().unwrap_or_default();
        Ok(Self {
            id: Name::intern(&format!("own-{}", machine.identity)),
            name: cpu.clone(),
            cpu,
            core: class.core,
            kind: class.kind,
            instance: class.instance,
            hypervisor: machine.platform.hypervisor.get().cloned().flatten(),
            cpus: machine.topology.allowed.get().and_then(|cpus| u32::try_from(cpus.len()).ok()),
            memory: None,
            channels: None,
            kernel: None,
            base_page: None,
            mitigations: mitigations(machine),
            measured: None,
            source: PublishedSource {
                id: KELVIN_METHOD.id,
                title: "a user's own runs".into(),
                url: String::new(),
                commit: None,
                read: String::new(),
            },
            at: run.into(),
            rows: figures.into_iter().map(row).collect(),
        })
    }
}

fn virtualisation(machine: &Facts) -> Virtualisation {
    match machine.platform.hypervisor.get() {
        Some(Some(_)) => Virtualisation::Guest,
        Some(None) => Virtualisation::BareMetal,
        None => Virtualisation::NotStated,
    }
}

/// Mitigations in force that cost kernel entries, where they are known.
fn mitigations(machine: &Facts) -> Option<BTreeSet<ActiveMitigation>> {
    let statuses = machine.cpu.mitigations.get()?;
    Some(statuses.iter().flat_map(|entry| ActiveMitigation::from_status(&entry.vulnerability, &entry.status)).collect())
}

/// The generation of the core that the machine states.
fn core_generation(machine: &Facts) -> Result<Name, String> {
    if let Some(Some(name)) = machine.platform.hypervisor.get()
        && name.contains("TCG")
    {
        return Err(format!("the processor is emulated by {name}"));
    }
    let fact = &machine.cpu.microarchitecture;
    let unknown_core = || format!("the generation of the core is not known: {}", fact.source_or_reason());
    fact.get().map(|core| Name::intern(core)).ok_or_else(unknown_core)
}

/// What a machine is built as.
fn machine_kind(machine: &Facts, core: Name) -> Result<MachineKind, String> {
    let name = machine.cpu.model_name.get().map_or("", String::as_str);
    let is_server = SERVER_NAMES.iter().any(|part| name.contains(part))
        || SERVER_CORES.iter().any(|begin| core.as_str().starts_with(begin));
    let product = &machine.platform.product;
    match machine.platform.chassis.get() {
        _ if is_server => Ok(MachineKind::Server),
        Some(Chassis::Server) => Ok(MachineKind::Server),
        Some(Chassis::Desktop) => Ok(MachineKind::Desktop),
        Some(Chassis::Laptop) => Ok(MachineKind::Laptop),
        None if product.get().is_some() && product.source_or_reason() == DEVICE_TREE => Ok(MachineKind::Board),
        None => Err("whether it is a server, a desktop, a laptop or a board is not known".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kelvin_core::Fact;

    use super::*;

    fn fact(text: &str) -> Fact<String> {
        Fact::known(text.to_owned(), "a test")
    }

    fn facts((vendor, core, name): (&str, &str, &str), flags: &[&str]) -> Facts {
        let mut facts = Facts::default();
        facts.cpu.vendor = fact(vendor);
        facts.cpu.microarchitecture = fact(core);
        facts.cpu.model_name = fact(name);
        facts.cpu.flags = Fact::known(flags.iter().map(|&flag| flag.to_owned()).collect(), "a test");
        facts.platform.hypervisor = Fact::known(Some("KVM".into()), "a test");
        facts
    }

    const ZEN_4: (&str, &str, &str) = ("AuthenticAMD", "Zen 4", "AMD EPYC");

    #[test]
    fn class_of_a_server_guest() {
        let mut guest = facts(ZEN_4, &["avx512f"]);
        let status = |vulnerability: &str, status: &str| kelvin_core::Mitigation {
            vulnerability: vulnerability.into(),
            status: status.into(),
        };
        let statuses = [("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode"), ("meltdown", "Not affected")];
        guest.cpu.mitigations =
            Fact::known(statuses.map(|(vulnerability, text)| status(vulnerability, text)).into(), "a test");
        let class = MachineClass::from_facts(&guest, MetricArea::Hardware).unwrap();
        assert_eq!(class.to_string(), "Zen 4, server, guest");
        let class = MachineClass::from_facts(&guest, MetricArea::Kernel).unwrap();
        assert_eq!(class.mitigations, Some(BTreeSet::from([ActiveMitigation::SafeReturn])));
    }

    #[test]
    fn unknown_hypervisor_gives_not_stated() {
        let mut machine = facts(ZEN_4, &[]);
        machine.platform.hypervisor = Fact::unknown("a test");
        assert_eq!(
            MachineClass::from_facts(&machine, MetricArea::Hardware).unwrap().instance,
            Virtualisation::NotStated
        );
    }

    #[test]
    fn board_is_known_by_device_tree() {
        let mut board = facts(("ARM", "Cortex-A76", ""), &[]);
        board.platform.hypervisor = Fact::known(None, "a test");
        board.platform.product = Fact::known("Raspberry Pi 5 Model B".into(), DEVICE_TREE);
        assert_eq!(MachineClass::from_facts(&board, MetricArea::Hardware).unwrap().kind, MachineKind::Board);
    }

    #[test]
    fn chassis_distinguishes_laptop_and_desktop() {
        let mut laptop = facts(("GenuineIntel", "Tiger Lake", "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz"), &[]);
        laptop.platform.hypervisor = Fact::known(None, "a test");
        assert!(MachineClass::from_facts(&laptop, MetricArea::Hardware).is_err());
        laptop.platform.chassis = Fact::known(Chassis::Laptop, "a test");
        assert_eq!(
            MachineClass::from_facts(&laptop, MetricArea::Hardware).unwrap().to_string(),
            "Tiger Lake, laptop, bare metal"
        );
    }

    #[test]
    fn unclassified_machine_has_reason() {
        let mut unknown_core = facts(ZEN_4, &[]);
        unknown_core.cpu.microarchitecture = Fact::unknown("family 0x99 is not in kelvin's table");
        let mut emulated_machine = facts(ZEN_4, &[]);
        emulated_machine.platform.hypervisor = Fact::known(Some("QEMU (TCG)".into()), "a test");
        let cases = [
            (
                facts(("GenuineIntel", "Rocket Lake", "Intel(R) Xeon(R) Processor"), &["avx512f", "amx_tile"]),
                "amx_tile",
            ),
            (facts(("AuthenticAMD", "Zen 2", "AMD EPYC"), &["avx512f"]), "hides its model"),
            (facts(("GenuineIntel", "Haswell", "Intel Core Processor (Haswell)"), &[]), "is not known"),
            (unknown_core, "is not in kelvin's table"),
            (emulated_machine, "emulated by QEMU"),
        ];
        for (machine, words) in cases {
            let reason = MachineClass::from_facts(&machine, MetricArea::Hardware).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }

    /// The names of cores are those of the library, which are those of the program's table.
    #[test]
    fn generation_cores_are_library_names() {
        let core_names: BTreeSet<&str> =
            crate::built_in_library().machines().iter().map(|machine| machine.core.as_str()).collect();
        for name in ["Sapphire Rapids", "Emerald Rapids", "Granite Rapids", "Zen 4", "Zen 5"] {
            assert!(core_names.contains(name), "{name}");
            assert!(ModelContradiction::flagged_cores().any(|core| core == name), "{name}");
        }
    }
}
