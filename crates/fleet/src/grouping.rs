//! Groups of hosts that should be alike, and the facts in which alike hosts may differ.

use std::collections::BTreeMap;

use kelvin_core::units::{bytes, count};
use kelvin_core::{IndirectSort, Machine};

use crate::input::HostInput;

/// Memory sizes of hosts with the same modules differ by what firmware and kernel keep for themselves, some per cent. Sizes on sale differ
/// by a fifth and more (48 and 64 GiB).
const MAX_MEMORY_RATIO: f64 = 1.06;

/// Hosts that should be alike, as indices.
pub(crate) struct HostGroup {
    pub name: String,
    pub hosts: Vec<usize>,
}

/// What hosts of a group have in common but for their memory.
type GroupKey = (String, Option<usize>, String, Option<String>);

fn key_of(host: &HostInput, by: Option<&str>) -> GroupKey {
    let Machine { cpu, topology, platform, architecture, .. } = &host.machine;
    let model = cpu.model_name.get().cloned().unwrap_or_else(|| format!("an unknown {architecture} processor"));
    let container = platform.container.get().cloned().flatten().map(|name| format!("{name} container"));
    let hypervisor = match platform.hypervisor.get() {
        Some(Some(name)) => format!("{name} guest"),
        Some(None) => "bare metal".to_owned(),
        None => "unknown platform".to_owned(),
    };
    let platform_text = [Some(hypervisor), container].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let tag =
        by.map(|name| host.tags.get(name).map_or_else(|| format!("no {name}"), |value| format!("{name}={value}")));
    (model, topology.online.get().map(Vec::len), platform_text, tag)
}

/// Groups hosts by processor model, number of CPUs, memory size, kind of machine, and a tag if one is named; the largest group first.
pub(crate) fn group_hosts(hosts: &[HostInput], by: Option<&str>) -> Vec<HostGroup> {
    let mut by_key: BTreeMap<GroupKey, Vec<usize>> = BTreeMap::new();
    for (index, host) in hosts.iter().enumerate() {
        by_key.entry(key_of(host, by)).or_default().push(index);
    }
    let mut groups: Vec<HostGroup> = Vec::new();
    for (key, mut members) in by_key {
        let memory = |index: &usize| hosts[*index].machine.memory.total_bytes.get().copied().unwrap_or(0);
        members.indirect_sort_by_key(|index| (memory(index), *index));
        let is_alike =
            |smaller: &usize, larger: &usize| memory(larger) as f64 <= memory(smaller) as f64 * MAX_MEMORY_RATIO;
        for alike in members.chunk_by(is_alike) {
            let size = memory(&alike[alike.len() / 2]);
            let mut indices = alike.to_vec();
            indices.sort_unstable();
            groups.push(HostGroup { name: group_name(&key, size), hosts: indices });
        }
    }
    groups.indirect_sort_by_key(|group| std::cmp::Reverse(group.hosts.len()));
    groups
}

fn group_name((model, cpus, platform, tag): &GroupKey, memory: u64) -> String {
    const GIBIBYTE: u64 = 1 << 30;
    let cpus = cpus.map_or_else(
        || "CPUs unknown".to_owned(),
        |cpus| match cpus {
            1 => "1 CPU".to_owned(),
            cpus => format!("{} CPUs", count(cpus as u64)),
        },
    );
    let memory = match memory {
        0 => "memory unknown".to_owned(),
        // Rounded up: what firmware and kernel keep is missing of the modules' size.
        size if size >= GIBIBYTE => bytes(size.div_ceil(GIBIBYTE) * GIBIBYTE),
        size => bytes(size),
    };
    [Some(model.clone()), Some(cpus), Some(memory), Some(platform.clone()), tag.clone()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

/// Groups of facts that may differ between alike hosts.
const FACT_GROUPS: [&str; 8] = ["CPU", "Topology", "Memory", "Disks", "Network", "Kernel", "Platform", "Limits"];
/// Facts that differ from run to run or from host to host of any fleet, that follow from others, or that groups are made by.
const OMITTED_FACTS: [(&str, &str); 15] = [
    ("CPU", "Measured frequency"),
    ("CPU", "Counter frequency"),
    ("CPU", "Model"),
    ("CPU", "Mitigations"),
    ("CPU", "Hardware counters"),
    ("Topology", "CPUs allowed"),
    ("Memory", "Total"),
    ("Memory", "Available"),
    ("Memory", "Peak bandwidth"),
    ("Kernel", "Version"),
    ("Kernel", "Boot line"),
    ("Platform", "Chassis"),
    ("Platform", "Hypervisor"),
    ("Platform", "Host"),
    ("Limits", "Processes"),
];
/// The beginning of labels of nodes, whose sizes differ like the total.
const NODE_LABEL: &str = "NUMA node ";
/// Boot parameters that name a host's own disk, image or address.
const OWN_BOOT_PARAMETERS: [&str; 9] = [
    "root",
    "BOOT_IMAGE",
    "resume",
    "ip",
    "initrd",
    "cryptdevice",
    "hostname",
    "systemd.machine_id",
    "systemd.hostname",
];

/// Group and label of a fact.
pub(crate) type FactKey = (String, String);

/// The facts in which hosts of a group may differ, as texts.
pub(crate) fn facts_of(machine: &Machine) -> BTreeMap<FactKey, String> {
    let mut facts = BTreeMap::new();
    let mut add = |group: &str, label: &str, text: &str| {
        facts.insert((group.to_owned(), label.to_owned()), text.to_owned());
    };
    for row in machine.rows() {
        let is_omitted = OMITTED_FACTS.contains(&(row.group, row.label.as_str())) || row.label.starts_with(NODE_LABEL);
        if let Some(text) = row.text.filter(|_| FACT_GROUPS.contains(&row.group) && !is_omitted) {
            add(row.group, &row.label, &text);
        }
    }
    for mitigation in machine.cpu.mitigations.get().into_iter().flatten() {
        add("Mitigations", &mitigation.vulnerability, &mitigation.status);
    }
    if let Some(line) = machine.kernel.command_line.get() {
        let name_of = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
        let is_shared = |parameter: &&str| !OWN_BOOT_PARAMETERS.contains(&name_of(parameter).as_str());
        let mut parameters: Vec<&str> = line.split_whitespace().filter(is_shared).collect();
        parameters.sort_unstable();
        add("Kernel", "Boot line", &parameters.join(" "));
    }
    facts
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Bios, Fact, ModuleGroup};

    use super::*;

    fn host(model: &str, cpus: u32, gibibytes: f64, rack: &str) -> HostInput {
        let mut host = HostInput::default();
        host.machine.cpu.model_name = Fact::known(model.to_owned(), "a test");
        host.machine.topology.online = Fact::known((0..cpus).collect(), "a test");
        host.machine.memory.total_bytes = Fact::known((gibibytes * f64::from(1 << 30)) as u64, "a test");
        host.machine.platform.hypervisor = Fact::known(None, "a test");
        host.tags.insert("rack".into(), rack.into());
        host
    }

    #[test]
    fn alike_hosts_share_a_group() {
        let hosts = [
            host("A", 8, 62.4, "r1"),
            host("A", 8, 62.6, "r2"),
            host("A", 8, 125.0, "r1"),
            host("A", 16, 62.5, "r1"),
            host("B", 8, 62.5, "r1"),
            host("A", 8, 60.5, "r1"),
        ];
        let members = |by| group_hosts(&hosts, by).into_iter().map(|group| group.hosts).collect::<Vec<_>>();
        assert_eq!(members(None)[0], [0, 1, 5]);
        assert_eq!(members(None).len(), 4);
        assert_eq!(members(Some("rack"))[0], [0, 5]);
        assert_eq!(group_hosts(&hosts, None)[0].name, "A, 8 CPUs, 63 GiB, bare metal");
    }

    #[test]
    fn facts_omit_what_is_a_hosts_own() {
        let mut machine = host("A", 8, 62.4, "r1").machine;
        machine.kernel.command_line = Fact::known("root=UUID=1 quiet mitigations=off".into(), "a test");
        machine.cpu.governor = Fact::known("powersave".into(), "a test");
        machine.platform.bios = Fact::known(Bios { version: Some("1.13".into()), ..Bios::default() }, "a test");
        let modules = ModuleGroup { count: 7, bytes: 32 << 30, transfers_per_second: Some(4.8e9) };
        machine.memory.modules = Fact::known(vec![modules], "a test");
        machine.memory.peak_bytes_per_second = Fact::known(1e9, "a test");
        let facts = facts_of(&machine);
        let text = |group: &str, label: &str| facts.get(&(group.to_owned(), label.to_owned())).map(String::as_str);
        assert_eq!(text("Kernel", "Boot line"), Some("mitigations=off quiet"));
        assert_eq!(text("CPU", "Frequency governor"), Some("powersave"));
        assert_eq!(text("Platform", "BIOS"), Some("1.13"));
        assert_eq!(text("Memory", "Modules"), Some("7 x 32 GiB at 4800 MT/s"));
        assert_eq!([text("Memory", "Total"), text("Memory", "Peak bandwidth")], [None, None]);
    }
}
