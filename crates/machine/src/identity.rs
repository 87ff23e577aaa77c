//! The hashes that identify a host, and runs of one host in one configuration.

use hmac::{Hmac, KeyInit, Mac};
use kelvin_core::{Cache, Fact, Machine, Mitigation};
use sha2::Sha256;

use crate::root::FileRoot;

/// Changes with the list of hashed facts, so that old and new identities never match by accident.
const IDENTITY_VERSION: &str = "kelvin machine 3";
/// The files with the machine id, by machine-id(5): the second is of systems without systemd.
const MACHINE_ID_FILES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// The application for which a machine id is hashed.
const APPLICATION_ID: u128 = 0x1d0c_33a7_5b6e_4f0e_9a53_62f7_8be1_c2d4;

/// The host by the hash of its machine id. It is unknown where the system has none, as in most containers: then alike machines are one.
pub(crate) fn host(root: FileRoot<'_>) -> Fact<String> {
    let host_of =
        |file: &str| root.fact(file, |text| Some(format!("{:032x}", application_specific(machine_id(text)?))));
    let [first, second] = MACHINE_ID_FILES.map(host_of);
    if first.get().is_none() && second.get().is_some() { second } else { first }
}

/// The machine id of a file: 32 hexadecimal digits. A system that has not been set up yet has `uninitialized` there, and an image may have
/// zeros.
fn machine_id(text: &str) -> Option<u128> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|&id| is_id && id != 0)
}

/// The hash of a machine id for this application, as systemd's `sd_id128_get_machine_app_specific` makes it: the first half of the
/// HMAC-SHA256 of the application's id by the machine id, marked as a random UUID.
fn application_specific(machine_id: u128) -> u128 {
    let mut mac = Hmac::<Sha256>::new_from_slice(&machine_id.to_be_bytes()).expect("any length is a key of HMAC");
    mac.update(&APPLICATION_ID.to_be_bytes());
    let hash = mac.finalize().into_bytes();
    let half = hash.iter().take(16).fold(0, |half, &byte| half << 8 | u128::from(byte));
    // RFC 9562: version 4 in the upper half of byte 6, variant 2 in the upper bits of byte 8.
    half & !(0xf << 76 | 0x3 << 62) | 4 << 76 | 2 << 62
}

/// A 128-bit FNV-1a hash, in hexadecimal, of the host and of the facts that make two of its runs comparable: processor, number of CPUs,
/// caches, memory to the nearest GiB, kernel, mitigations, hypervisor. No host name, address or serial number. The BIOS is none of them:
/// runs of earlier versions do not state it.
pub(crate) fn identity(machine: &Machine) -> String {
    hash_facts(machine, machine.kernel.release.get(), machine.cpu.mitigations.get())
}

/// The hash of the facts that stay when the kernel is upgraded or its settings change, and so identify one machine over its history:
/// host, processor, number of CPUs, caches, memory to the nearest GiB, hypervisor. Two alike machines of unknown hosts are one by it, as by
/// their identity.
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
        platform.host.get().cloned(),
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
    use kelvin_core::{Bios, ModuleGroup};

    use super::*;

    #[test]
    fn fnv_1a_matches_published_values() {
        // FNV test vectors, http://www.isthe.com/chongo/tech/comp/fnv.
        assert_eq!(fnv_1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv_1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(fnv_1a(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn host_is_hashed_as_systemd_does() {
        // systemd-id128 machine-id --app-specific=1d0c33a75b6e4f0e9a5362f78be1c2d4, where /etc/machine-id has the first.
        assert_eq!(
            application_specific(0x3d12_19c7_c4c5_404a_aa1f_6d2a_48ad_fda4),
            0xcfd7_7943_9b13_4fc5_8199_bc5e_1908_8819
        );
    }

    #[test]
    fn host_is_that_of_the_machine_id() {
        let tree = tempfile::tempdir().unwrap();
        let host_with = |file: &str, text: &str| {
            let path = tree.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            host(FileRoot::new(tree.path()))
        };
        assert!(host(FileRoot::new(tree.path())).source_or_reason().contains("/etc/machine-id"));
        let second = host_with("var/lib/dbus/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n");
        assert_eq!(second.source_or_reason(), "/var/lib/dbus/machine-id");
        assert_eq!(host_with("etc/machine-id", "uninitialized\n").get(), second.get());
        let first = host_with("etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda5\n");
        assert!(first.get().is_some() && first.get() != second.get());
        for not_an_id in ["", "3d1219c7c4c5404aaa1f6d2a48adfda", "+d1219c7c4c5404aaa1f6d2a48adfda4", &"0".repeat(32)] {
            assert_eq!(machine_id(not_an_id), None, "{not_an_id}");
        }
    }

    #[test]
    fn alike_hosts_are_several_machines() {
        let [mut one, mut other] = [Machine::default(), Machine::default()];
        assert_eq!((identity(&one), hardware_identity(&one)), (identity(&other), hardware_identity(&other)));
        one.platform.host = Fact::known("1".repeat(32), "a test");
        other.platform.host = Fact::known("2".repeat(32), "a test");
        assert_ne!(identity(&one), identity(&other));
        assert_ne!(hardware_identity(&one), hardware_identity(&other));
    }

    #[test]
    fn firmware_and_modules_make_no_other_machine() {
        let mut machine = Machine::default();
        let before = (identity(&machine), hardware_identity(&machine));
        machine.platform.bios = Fact::known(Bios { version: Some("1.13.2".into()), ..Bios::default() }, "a test");
        let group = ModuleGroup { count: 8, bytes: 32 << 30, transfers_per_second: None };
        machine.memory.modules = Fact::known(vec![group], "a test");
        assert_eq!((identity(&machine), hardware_identity(&machine)), before);
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
