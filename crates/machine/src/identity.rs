//! The hash that identifies runs of one machine in one configuration.

use kelvin_core::{Cpu, Fact, Kernel, Machine};

/// Changes with the list of hashed facts, so that old and new identities never match by accident.
const IDENTITY_VERSION: &str = "kelvin machine 1";

/// A 128-bit FNV-1a hash, in hexadecimal, of the facts that make two runs comparable: processor, number of CPUs,
/// caches, memory to the nearest GiB, kernel, mitigations, hypervisor. No host name, address or serial number.
pub(crate) fn identity(machine: &Machine) -> String {
    let cpu = &machine.cpu;
    let gibibytes = machine.memory.total_bytes.get().map(|bytes| (*bytes as f64 / f64::from(1 << 30)).round());
    let caches = machine.topology.caches.get().map(|caches| {
        caches.iter().map(|cache| format!("{} {:?} {}", cache.level, cache.kind, cache.bytes)).collect::<Vec<_>>()
    });
    let mitigations = cpu
        .mitigations
        .get()
        .map(|all| all.iter().map(|one| format!("{}: {}", one.vulnerability, one.status)).collect::<Vec<_>>());
    let parts = [
        IDENTITY_VERSION.to_owned(),
        machine.architecture.to_string(),
        fact_text(&cpu.vendor),
        fact_text(&cpu.family),
        fact_text(&cpu.model),
        fact_text(&cpu.stepping),
        format!("{:?}", machine.topology.online.get().map(Vec::len)),
        format!("{caches:?}"),
        format!("{gibibytes:?}"),
        fact_text(&machine.kernel.release),
        format!("{mitigations:?}"),
        fact_text(&machine.platform.hypervisor),
    ];
    format!("{:032x}", fnv_1a(parts.join("\n").as_bytes()))
}

/// The same of the facts that stay when the kernel is upgraded or its settings change, and so tell one machine over its history:
/// processor, number of CPUs, caches, memory to the nearest GiB, hypervisor. Two alike guests are one machine by it, as by its identity.
pub fn hardware_identity(machine: &Machine) -> String {
    let known = Machine {
        kernel: Kernel { release: Fact::default(), ..machine.kernel.clone() },
        cpu: Cpu { mitigations: Fact::default(), ..machine.cpu.clone() },
        ..machine.clone()
    };
    identity(&known)
}

/// The value alone: its source, or the reason for none, is not part of the identity.
fn fact_text<T: std::fmt::Debug>(fact: &Fact<T>) -> String {
    format!("{:?}", fact.get())
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
        let nothing = identity(&machine);
        machine.cpu.family = Fact::known(26, "/proc/cpuinfo");
        let family = identity(&machine);
        machine.cpu.family = Fact::known(26, "cpuid");
        machine.memory.available_bytes = Fact::known(1, "/proc/meminfo");
        assert_eq!(identity(&machine), family);
        assert_ne!(nothing, family);
        assert_eq!(family.len(), 32);
        let hardware_before = hardware_identity(&machine);
        machine.kernel.release = Fact::known("6.6".into(), "uname");
        assert_eq!(hardware_identity(&machine), hardware_before);
        assert_ne!(identity(&machine), family);
        machine.cpu.stepping = Fact::known(3, "/proc/cpuinfo");
        assert_ne!(hardware_identity(&machine), hardware_before);
    }
}
