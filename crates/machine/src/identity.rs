//! The hash that identifies runs of one machine in one configuration.

use kelvin_core::{Cache, Fact, Machine, Mitigation};

/// Changes with the list of hashed facts, so that old and new identities never match by accident.
const IDENTITY_VERSION: &str = "kelvin machine 2";

/// A 128-bit FNV-1a hash, in hexadecimal, of the facts that make two runs comparable: processor, number of CPUs,
/// caches, memory to the nearest GiB, kernel, mitigations, hypervisor. No host name, address or serial number.
pub(crate) fn identity(machine: &Machine) -> String {
    hash_facts(machine, machine.kernel.release.get(), machine.cpu.mitigations.get())
}

/// The hash of the facts that stay when the kernel is upgraded or its settings change, and so identify one machine over its history:
/// processor, number of CPUs, caches, memory to the nearest GiB, hypervisor. Two alike guests are one machine by it, as by its identity.
pub fn hardware_identity(machine: &Machine) -> String {
    hash_facts(machine, None, None)
}

/// The values alone: the source of one, or the reason for none, is not part of the identity.
fn hash_facts(machine: &Machine, release: Option<&String>, mitigations: Option<&Vec<Mitigation>>) -> String {
    let Machine { cpu, topology, memory, platform, .. } = machine;
    // Whichever CPU is measured, the machine is the same; earlier versions read the caches of one CPU only.
    let fastest = topology.online.get().and_then(|online| topology.default_cpu(online));
    let caches = match fastest.map(|cpu| topology.caches_of(cpu)) {
        Some(caches @ Fact::Known { .. }) => caches,
        _ => topology.caches.clone(),
    };
    let gibibytes = memory.total_bytes.get().map(|bytes| (*bytes as f64 / f64::from(1 << 30)).round());
    let cache = |cache: &Cache| format!("{} {} {}", cache.level, cache.kind.word(), cache.bytes);
    let mitigation = |entry: &Mitigation| format!("{}: {}", entry.vulnerability, entry.status);
    let number = |fact: &Fact<u32>| fact.get().map(u32::to_string);
    let parts = [
        Some(IDENTITY_VERSION.to_owned()),
        Some(machine.architecture.to_string()),
        cpu.vendor.get().cloned(),
        number(&cpu.family),
        number(&cpu.model),
        number(&cpu.stepping),
        topology.online.get().map(|cpus| cpus.len().to_string()),
        caches.get().map(|entries| entries.iter().map(cache).collect::<Vec<_>>().join(", ")),
        gibibytes.map(|gibibytes| gibibytes.to_string()),
        release.cloned(),
        mitigations.map(|entries| entries.iter().map(mitigation).collect::<Vec<_>>().join(", ")),
        platform.hypervisor.get().map(|name| name.clone().unwrap_or_else(|| "none".to_owned())),
    ];
    let lines = parts.map(|part| part.map_or("unknown".to_owned(), |text| format!("= {text}")));
    format!("{:032x}", fnv_1a(lines.join("\n").as_bytes()))
}

/// FNV-1a with the parameters for 128 bits (RFC 9923, section 5).
fn fnv_1a(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_1a_matches_published_values() {
        // FNV test vectors, http://www.isthe.com/chongo/tech/comp/fnv.
        assert_eq!(fnv_1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv_1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(fnv_1a(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn identity_depends_on_values_not_sources() {
        let mut machine = Machine::default();
        let default_identity = identity(&machine);
        machine.cpu.family = Fact::known(26, "/proc/cpuinfo");
        let family = identity(&machine);
        machine.cpu.family = Fact::known(26, "cpuid");
        machine.memory.available_bytes = Fact::known(1, "/proc/meminfo");
        assert_eq!(identity(&machine), family);
        assert_ne!(default_identity, family);
        assert_eq!(family.len(), 32);
        let hardware_before = hardware_identity(&machine);
        machine.kernel.release = Fact::known("6.6".into(), "uname");
        assert_eq!(hardware_identity(&machine), hardware_before);
        assert_ne!(identity(&machine), family);
        machine.cpu.stepping = Fact::known(3, "/proc/cpuinfo");
        assert_ne!(hardware_identity(&machine), hardware_before);
    }
}
