//! A machine's facts as lines for people.

use std::collections::BTreeSet;

use crate::Unit;
use crate::units::{bit_rate, bytes, cpus, plural, stated_value, trimmed_decimal};
use crate::{
    Bios, BlockDevice, Cache, CacheDomain, CacheInstances, CoreGroup, CoreKind, Cpu, Fact, FactRow, HardwareCounters,
    Kernel, Limits, Machine, Memory, Mitigation, ModuleGroup, Name, Nic, NumaNode, Platform, Tlb, Topology,
};

impl Machine {
    /// Every fact as a line for people, grouped, in the order of reports.
    pub fn rows(&self) -> Vec<FactRow> {
        let mut rows = FactRows(Vec::new());
        rows.cpu(&self.cpu, self.architecture);
        rows.topology(&self.topology);
        rows.memory(&self.memory);
        self.disks.iter().for_each(|disk| rows.disk(disk));
        for mount in &self.mounts {
            let text = format!("{} on {} ({})", mount.kind, mount.source, mount.options);
            rows.push("File systems", &mount.target, &Fact::known(text, "/proc/self/mountinfo"), String::clone);
        }
        self.nics.iter().for_each(|nic| rows.nic(nic));
        rows.kernel(&self.kernel);
        rows.platform(&self.platform);
        rows.limits(&self.limits);
        rows.0
    }
}

/// The lines so far.
struct FactRows(Vec<FactRow>);

impl FactRows {
    fn push<T>(&mut self, group: &'static str, label: &str, fact: &Fact<T>, text: impl FnOnce(&T) -> String) {
        self.0.push(FactRow {
            group,
            label: label.to_owned(),
            text: fact.get().map(text),
            source: fact.source_or_reason().to_owned(),
        });
    }

    fn cpu(&mut self, cpu: &Cpu, architecture: Name) {
        const GROUP: &str = "CPU";
        self.push(GROUP, "Model", &cpu.model_name, String::clone);
        self.push(GROUP, "Vendor", &cpu.vendor, String::clone);
        self.push(GROUP, "Microarchitecture", &cpu.microarchitecture, String::clone);
        if architecture == "aarch64" {
            self.push(GROUP, "Part", &cpu.model, |part| format!("{part:#05x}"));
            self.push(GROUP, "Revision", &cpu.stepping, u32::to_string);
        } else {
            self.push(GROUP, "Family", &cpu.family, |family| format!("{family} ({family:#x})"));
            self.push(GROUP, "Model number", &cpu.model, |model| format!("{model} ({model:#x})"));
            self.push(GROUP, "Stepping", &cpu.stepping, u32::to_string);
        }
        self.push(GROUP, "Microcode", &cpu.microcode, String::clone);
        self.push(GROUP, "Nominal frequency", &cpu.nominal_hz, |hz| stated_value(*hz, Unit::Hertz, 3));
        self.push(GROUP, "Highest frequency", &cpu.maximum_hz, |hz| stated_value(*hz, Unit::Hertz, 3));
        self.push(GROUP, "Measured frequency", &cpu.measured_hz, |hz| {
            format!("{}, cycle {:.4} ns", stated_value(*hz, Unit::Hertz, 3), 1e9 / hz)
        });
        self.push(GROUP, "Counter frequency", &cpu.counter_hz, |hz| stated_value(*hz, Unit::Hertz, 3));
        self.push(GROUP, "Frequency governor", &cpu.governor, String::clone);
        self.push(GROUP, "TLBs", &cpu.tlbs, |tlbs| join_texts(tlbs, tlb));
        self.push(GROUP, "Hardware counters", &cpu.hardware_counters, hardware_counters);
        self.push(GROUP, "Mitigations", &cpu.mitigations, |statuses| mitigations(statuses));
        self.push(GROUP, "Instruction sets", &cpu.flags, |flags| flags.join(" "));
    }

    fn topology(&mut self, topology: &Topology) {
        const GROUP: &str = "Topology";
        self.push(GROUP, "CPUs online", &topology.online, |cpus| cpu_count(cpus));
        self.push(GROUP, "CPUs offline", &topology.offline, |cpus| cpu_count(cpus));
        self.push(GROUP, "CPUs isolated", &topology.isolated, |cpus| cpu_count(cpus));
        self.push(GROUP, "CPUs allowed", &topology.allowed, |cpus| cpu_count(cpus));
        self.push(GROUP, "Sockets", &topology.sockets, u32::to_string);
        self.push(GROUP, "Cores", &topology.cores, u32::to_string);
        self.push(GROUP, "Threads of a core", &topology.siblings, |sets| threads_per_core(sets));
        match topology.core_kinds.get() {
            Some(kinds) if !kinds.is_empty() => {
                let label = |kind: &CoreKind| kind.name.clone();
                self.push_each(GROUP, "", &topology.core_kinds, label, |kind| core_kind(kind, topology));
            }
            _ => self.push(GROUP, "Kinds of cores", &topology.core_kinds, |_| "1".into()),
        }
        if topology.cache_instances.get().is_some() {
            let label = |caches: &CacheInstances| format!("L{} {} cache", caches.level, caches.kind.word());
            self.push_each(GROUP, "Caches", &topology.cache_instances, label, cache_instances);
        } else {
            // A run of an earlier version has those of one CPU.
            let label = |cache: &Cache| format!("L{} {} cache", cache.level, cache.kind.word());
            self.push_each(GROUP, "Caches", &topology.caches, label, cache);
        }
        self.push_each(GROUP, "NUMA nodes", &topology.nodes, |node| format!("NUMA node {}", node.id), node);
    }

    /// A line for each item, with a label of its own; one with the label of them all where they are not known.
    fn push_each<T>(
        &mut self,
        group: &'static str,
        unknown_label: &str,
        fact: &Fact<Vec<T>>,
        label: impl Fn(&T) -> String,
        text: impl Fn(&T) -> String,
    ) {
        let Some(items) = fact.get() else { return self.push(group, unknown_label, fact, |_| String::new()) };
        for item in items {
            self.push(group, &label(item), fact, |_| text(item));
        }
    }

    fn memory(&mut self, memory: &Memory) {
        const GROUP: &str = "Memory";
        self.push(GROUP, "Total", &memory.total_bytes, |size| bytes(*size));
        self.push(GROUP, "Available", &memory.available_bytes, |size| bytes(*size));
        self.push(GROUP, "Swap", &memory.swap_bytes, |size| if *size == 0 { "none".into() } else { bytes(*size) });
        self.push(GROUP, "Page", &memory.page_bytes, |size| bytes(*size));
        self.push(GROUP, "Huge pages", &memory.huge_page_bytes, |sizes| {
            if sizes.is_empty() { "none".into() } else { join_texts(sizes, |size| bytes(*size)) }
        });
        self.push(GROUP, "Transparent huge pages", &memory.transparent_huge_pages, String::clone);
        if !memory.modules.is_not_read() {
            self.push(GROUP, "Modules", &memory.modules, |groups| join_texts(groups, module_group));
        }
        // Where nothing states the modules, the reason is given once.
        let reason = memory.modules.get().is_none().then(|| memory.modules.source_or_reason());
        self.push_unless_reason(reason, (GROUP, "Type"), &memory.kind, String::clone);
        self.push_unless_reason(reason, (GROUP, "Rate"), &memory.transfers_per_second, |rate| transfer_rate(*rate));
        self.push_unless_reason(reason, (GROUP, "Channels"), &memory.channels, u32::to_string);
        self.push_unless_reason(reason, (GROUP, "Peak bandwidth"), &memory.peak_bytes_per_second, |rate| {
            stated_value(*rate, Unit::BytesPerSecond, 1)
        });
    }

    /// A line, unless the fact is unknown for a reason that another line has given.
    fn push_unless_reason<T>(
        &mut self,
        given_reason: Option<&str>,
        (group, label): (&'static str, &str),
        fact: &Fact<T>,
        text: impl FnOnce(&T) -> String,
    ) {
        let is_given = fact.get().is_none() && given_reason == Some(fact.source_or_reason()) && !fact.is_not_read();
        if !is_given {
            self.push(group, label, fact, text);
        }
    }

    fn disk(&mut self, disk: &BlockDevice) {
        const GROUP: &str = "Disks";
        let label = |property: &str| format!("{} {property}", disk.name);
        self.push(GROUP, &label("model"), &disk.model, String::clone);
        self.push(GROUP, &label("size"), &disk.bytes, |size| bytes(*size));
        self.push(GROUP, &label("link"), &disk.link, String::clone);
        self.push(GROUP, &label("scheduler"), &disk.scheduler, String::clone);
        self.push(GROUP, &label("queues"), &disk.queues, u32::to_string);
        self.push(GROUP, &label("queue depth"), &disk.queue_depth, u32::to_string);
        self.push(GROUP, &label("write cache"), &disk.write_cache, String::clone);
        self.push(GROUP, &label("rotational"), &disk.rotational, |is_rotational| yes_no(*is_rotational));
        self.push(GROUP, &label("logical block"), &disk.logical_block_bytes, |size| bytes(u64::from(*size)));
    }

    fn nic(&mut self, nic: &Nic) {
        const GROUP: &str = "Network";
        let label = |property: &str| format!("{} {property}", nic.name);
        self.push(GROUP, &label("driver"), &nic.driver, String::clone);
        self.push(GROUP, &label("advertised link speed"), &nic.bits_per_second, |rate| bit_rate(*rate));
        // Without an advertised speed the reason would be the same.
        if nic.bits_per_second.get().is_some() {
            self.push(GROUP, &label("line rate"), &nic.line_rate, |rate| bit_rate(*rate));
        }
        self.push(GROUP, &label("MTU"), &nic.mtu, |bytes| format!("{bytes} B"));
        self.push(GROUP, &label("state"), &nic.state, String::clone);
        self.push(GROUP, &label("offloads"), &nic.offloads, |names| {
            if names.is_empty() { "none".into() } else { names.join(", ") }
        });
    }

    fn kernel(&mut self, kernel: &Kernel) {
        const GROUP: &str = "Kernel";
        self.push(GROUP, "Release", &kernel.release, String::clone);
        self.push(GROUP, "Version", &kernel.version, String::clone);
        self.push(GROUP, "Distribution", &kernel.distribution, String::clone);
        self.push(GROUP, "C library", &kernel.libc, String::clone);
        self.push(GROUP, "Boot line", &kernel.command_line, |line| boot_line(line, kernel.omitted_boot_parameters));
        self.push(GROUP, "Preemption", &kernel.preemption, String::clone);
        self.push(GROUP, "Timer", &kernel.timer_hz, |hz| format!("{hz} Hz"));
        self.push(GROUP, "Scheduler", &kernel.scheduler, String::clone);
        self.push(GROUP, "TCP congestion control", &kernel.congestion_control, String::clone);
        self.push(GROUP, "Clock source", &kernel.clock_source, String::clone);
    }

    fn platform(&mut self, platform: &Platform) {
        const GROUP: &str = "Platform";
        let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".into());
        self.push(GROUP, "Product", &platform.product, String::clone);
        self.push(GROUP, "Chassis", &platform.chassis, |chassis| chassis.word().to_owned());
        if !platform.bios.is_not_read() {
            self.push(GROUP, "BIOS", &platform.bios, bios);
        }
        self.push(GROUP, "Hypervisor", &platform.hypervisor, or_none);
        self.push(GROUP, "Container", &platform.container, or_none);
        if !platform.host.is_not_read() {
            self.push(GROUP, "Host", &platform.host, String::clone);
        }
    }

    fn limits(&mut self, limits: &Limits) {
        const GROUP: &str = "Limits";
        self.push(GROUP, "CPU quota", &limits.cpu_quota, |quota| quota.map_or_else(|| "none".into(), cpus));
        self.push(GROUP, "Memory", &limits.memory_bytes, |limit| limit.map_or_else(|| "none".into(), bytes));
        self.push(GROUP, "Processes", &limits.processes, |n| n.map_or_else(|| "none".into(), |n| n.to_string()));
        self.push(GROUP, "Open files", &limits.open_files, |files| {
            if *files == u64::MAX { "none".into() } else { files.to_string() }
        });
        self.push(GROUP, "cgroup version", &limits.cgroup_version, |version| {
            if *version == 0 { "none".into() } else { version.to_string() }
        });
    }
}

/// The boot line, and how many of its parameters are left out.
fn boot_line(line: &str, omitted_count: Option<u32>) -> String {
    match omitted_count {
        None | Some(0) => line.to_owned(),
        Some(count) if line.is_empty() => format!("{count} parameters left out, none of which matters to figures"),
        Some(count) => format!("{line} ({count} more left out, which matter to no figure)"),
    }
}

/// `8 x 32 GiB at 4800 MT/s`.
fn module_group(group: &ModuleGroup) -> String {
    let rate = group.transfers_per_second.map(|rate| format!(" at {}", transfer_rate(rate))).unwrap_or_default();
    format!("{} x {}{rate}", group.count, bytes(group.bytes))
}

fn transfer_rate(rate: f64) -> String {
    format!("{} MT/s", trimmed_decimal(rate / 1e6, 1))
}

/// `Dell Inc. 1.13.2, 2023-12-19`.
fn bios(bios: &Bios) -> String {
    let name = [&bios.vendor, &bios.version].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    let parts = [Some(name).filter(|name| !name.is_empty()), bios.date.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn join_texts<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn yes_no(is_true: bool) -> String {
    String::from(if is_true { "yes" } else { "no" })
}

/// How many CPUs, and which.
fn cpu_count(cpus: &[u32]) -> String {
    if cpus.is_empty() { "none".into() } else { format!("{} ({})", cpus.len(), cpu_ranges(cpus)) }
}

fn core_kind(kind: &CoreKind, topology: &Topology) -> String {
    let locations = topology.core_locations.get().map_or(&[][..], Vec::as_slice);
    let cores = locations.iter().filter(|core| core.cpus.iter().any(|cpu| kind.cpus.contains(cpu))).count();
    let parts = [
        (cores > 0).then(|| plural(cores as u64, "core")),
        Some(numbered_cpus(&kind.cpus)),
        kind.maximum_hz.map(|hz| format!("up to {}", stated_value(hz, Unit::Hertz, 3))),
        kind.capacity.map(|capacity| format!("capacity {capacity}")),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
}

/// CPUs by number: `CPU 7`, `CPUs 0-3`.
pub fn numbered_cpus(cpus: &[u32]) -> String {
    format!("{} {}", if cpus.len() == 1 { "CPU" } else { "CPUs" }, cpu_ranges(cpus))
}

fn cache_instances(caches: &CacheInstances) -> String {
    let mut sharers: Vec<usize> = caches.shared_by.iter().map(Vec::len).collect();
    sharers.sort_unstable();
    sharers.dedup();
    let sharers = match sharers[..] {
        [count] => plural(count as u64, "CPU"),
        _ => format!("{} to {} CPUs", sharers[0], sharers[sharers.len() - 1]),
    };
    let each = if caches.shared_by.len() == 1 { "of" } else { "each of" };
    let parts = [
        Some(format!("{} x {}", caches.shared_by.len(), bytes(caches.bytes))),
        caches.ways.map(|ways| format!("{ways}-way")),
        caches.line_bytes.map(|line| format!("{line} B lines")),
        Some(format!("{each} {sharers}")),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
}

/// A socket, die and node, with the last-level caches in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyPlace {
    /// `socket 0, node 1 (64 GiB)`.
    pub title: String,
    /// Its last-level caches, with the cores that share each; none of a node of memory alone.
    pub domains: Vec<CacheDomain>,
}

/// The places of a machine, in the order of the kernel's numbers; none if it is not known which CPUs share a core.
pub fn topology_places(topology: &Topology) -> Vec<TopologyPlace> {
    let mut places: Vec<TopologyPlace> = Vec::new();
    let mut last_place = None;
    for domain in topology.cache_domains() {
        let place = (domain.socket, domain.die, domain.node);
        if last_place != Some(place) {
            last_place = Some(place);
            places.push(TopologyPlace { title: place_title(&domain, topology), domains: Vec::new() });
        }
        places.last_mut().into_iter().for_each(|place| place.domains.push(domain.clone()));
    }
    for node in topology.nodes.get().into_iter().flatten().filter(|node| node.cpus.is_empty()) {
        let title = format!("node {}{}, no CPUs", node.id, node_memory(node));
        places.push(TopologyPlace { title, domains: Vec::new() });
    }
    places
}

impl CacheDomain {
    /// `L3 32 MiB`; nothing of an unknown cache.
    pub fn cache_title(&self) -> Option<String> {
        self.cache.map(|(level, size)| format!("L{level} {}", bytes(size)))
    }
}

/// The map of a machine: for each socket, die and node its last-level caches, with the cores that share each; a line each.
pub fn topology_map(topology: &Topology) -> Vec<String> {
    let line = |domain: &CacheDomain| {
        let cache = domain.cache_title().map(|title| format!("{title}: ")).unwrap_or_default();
        let groups: Vec<String> = domain.cores.iter().map(|group| core_group(group, topology)).collect();
        format!("  {cache}{}", groups.join("; "))
    };
    let lines =
        |place: TopologyPlace| std::iter::once(place.title).chain(place.domains.iter().map(line).collect::<Vec<_>>());
    topology_places(topology).into_iter().flat_map(lines).collect()
}

/// Sockets are counted: the kernel's numbers of them may be addresses in a table of the firmware.
fn place_title(domain: &CacheDomain, topology: &Topology) -> String {
    let node = domain.node.and_then(|id| topology.nodes.get()?.iter().find(|node| node.id == id));
    let socket = domain.socket.map(|socket| {
        let cores = topology.core_locations.get().into_iter().flatten();
        let lower: BTreeSet<u32> = cores.filter_map(|core| core.socket).filter(|other| *other < socket).collect();
        format!("socket {}", lower.len())
    });
    let parts = [
        socket,
        domain.die.map(|die| format!("die {die}")),
        node.map(|node| format!("node {}{}", node.id, node_memory(node))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "machine".into() } else { parts.join(", ") }
}

fn node_memory(node: &NumaNode) -> String {
    node.bytes.map_or_else(String::new, |size| format!(" ({})", bytes(size)))
}

fn core_group(group: &CoreGroup, topology: &Topology) -> String {
    let kind = group.kind.and_then(|kind| Some(topology.core_kinds.get()?[kind].name.as_str()));
    let cpus = group.cpus();
    let threads = match group.cores.first().map_or(0, Vec::len) {
        threads if threads > 1 && group.cores.iter().all(|core| core.len() == threads) => {
            format!(" of {threads} threads")
        }
        _ => String::new(),
    };
    let count = group.cores.len();
    let noun = if count == 1 { "core" } else { "cores" };
    let cores = match kind.unwrap_or("core") {
        name if name.contains("core") => name.replace("core", noun),
        design => format!("{design} {noun}"),
    };
    format!("{count} {cores}{threads}, {}", numbered_cpus(&cpus))
}

fn cache(cache: &Cache) -> String {
    let parts = [
        Some(bytes(cache.bytes)),
        cache.ways.map(|ways| format!("{ways}-way")),
        cache.line_bytes.map(|line| format!("{line} B lines")),
        (!cache.shared_by.is_empty()).then(|| format!("of {}", numbered_cpus(&cache.shared_by))),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join(", ")
}

fn node(node: &NumaNode) -> String {
    let memory = node.bytes.map_or_else(|| "memory unknown".into(), bytes);
    let distances = match node.distances[..] {
        [] => "distances unknown".to_owned(),
        _ => format!("distances {}", join_texts(&node.distances, u32::to_string)),
    };
    let cpus = if node.cpus.is_empty() { "no CPUs".into() } else { format!("CPUs {}", cpu_ranges(&node.cpus)) };
    format!("{cpus}, {memory}, {distances}")
}

fn tlb(tlb: &Tlb) -> String {
    let ways = match tlb.ways {
        0 => String::from("fully associative"),
        ways => format!("{ways}-way"),
    };
    format!("L{} {} {}: {} entries {ways}", tlb.level, tlb.kind.word(), bytes(tlb.page_bytes), tlb.entries)
}

/// Mitigations in force or missing; those that do not concern the machine are only counted.
fn mitigations(statuses: &[Mitigation]) -> String {
    let (unaffected, affected): (Vec<_>, Vec<_>) =
        statuses.iter().partition(|entry| entry.status.starts_with("Not affected"));
    let mut parts: Vec<String> =
        affected.iter().map(|entry| format!("{}: {}", entry.vulnerability, entry.status)).collect();
    if !unaffected.is_empty() {
        parts.push(format!("not affected by {} others", unaffected.len()));
    }
    parts.join("; ")
}

fn hardware_counters(counters: &HardwareCounters) -> String {
    let events = join_texts(&counters.events, |event| event.words().to_owned());
    if counters.excludes_kernel { format!("{events}; without the kernel's work") } else { events }
}

fn threads_per_core(siblings: &[Vec<u32>]) -> String {
    let mut counts: Vec<usize> = siblings.iter().map(Vec::len).collect();
    counts.sort_unstable();
    counts.dedup();
    join_texts(&counts, usize::to_string)
}

/// CPUs as ranges, in ascending order: `0-3,8`.
pub fn cpu_ranges(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for cpu in sorted {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => spans.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    spans.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_rows_show_scaled_values() {
        assert_eq!(cpu_ranges(&[8, 0, 1, 2, 3]), "0-3,8");
        assert_eq!(cpu_ranges(&[]), "");
    }

    #[test]
    fn unknown_machine_has_reason_per_row() {
        let rows = Machine::default().rows();
        assert!(rows.len() > 40);
        assert!(rows.iter().all(|row| row.text.is_none() && row.source == "not read"));
    }

    #[test]
    fn known_fact_has_text_and_source() {
        let mut machine = Machine::default();
        machine.limits.cpu_quota = Fact::known(Some(1.5), "/sys/fs/cgroup/cpu.max");
        machine.platform.hypervisor = Fact::known(None, "/proc/cpuinfo");
        let rows = machine.rows();
        let row = |label: &str| rows.iter().find(|row| row.label == label).unwrap();
        assert_eq!(row("CPU quota").text.as_deref(), Some("1.5 CPUs"));
        assert_eq!(row("CPU quota").source, "/sys/fs/cgroup/cpu.max");
        assert_eq!(row("Hypervisor").text.as_deref(), Some("none"));
    }

    #[test]
    fn firmware_and_modules_are_lines() {
        let mut machine = Machine::default();
        let group = |count, bytes, rate| ModuleGroup { count, bytes, transfers_per_second: rate };
        machine.memory.modules = Fact::known(vec![group(7, 32 << 30, Some(4.8e9)), group(1, 16 << 30, None)], "a test");
        machine.platform.bios = Fact::known(
            Bios { vendor: Some("Dell Inc.".into()), version: Some("1.13.2".into()), date: Some("2023-12-19".into()) },
            "a test",
        );
        let text = |machine: &Machine, label: &str| {
            machine.rows().into_iter().find(|row| row.label == label).and_then(|row| row.text)
        };
        assert_eq!(text(&machine, "Modules").as_deref(), Some("7 x 32 GiB at 4800 MT/s, 1 x 16 GiB"));
        assert_eq!(text(&machine, "BIOS").as_deref(), Some("Dell Inc. 1.13.2, 2023-12-19"));
        machine.platform.bios = Fact::known(Bios { date: Some("2014-04-01".into()), ..Bios::default() }, "a test");
        assert_eq!(text(&machine, "BIOS").as_deref(), Some("2014-04-01"));
    }

    #[test]
    fn reason_for_unknown_modules_is_given_once() {
        let mut machine = Machine::default();
        let reason = "there is no table";
        machine.memory.modules = Fact::unknown(reason);
        machine.memory.kind = Fact::unknown(reason);
        machine.memory.channels = Fact::unknown("slot names do not identify channels");
        let rows = machine.rows();
        let has_row = |label: &str| rows.iter().any(|row| row.group == "Memory" && row.label == label);
        assert_eq!(rows.iter().filter(|row| row.source == reason).count(), 1);
        assert!(has_row("Modules") && has_row("Channels") && !has_row("Type"));
    }
}
