//! Network interfaces as sysfs and their drivers describe them.

use kelvin_core::{Fact, Nic};

use crate::root::{FileRoot, known_name, value_of_key};

/// Where the kernel shows network interfaces.
const INTERFACES_DIRECTORY: &str = "/sys/class/net";

/// `ARPHRD_ETHER` of `linux/if_arp.h`, in the file `type`.
const ETHERNET_TYPE: &str = "1";
/// `ARPHRD_LOOPBACK` of `linux/if_arp.h`, in the file `type`.
const LOOPBACK_TYPE: &str = "772";
/// Bits of the negotiated features of a virtio network device (virtio 1.3, 5.1.3), and ethtool's names of the offloads.
const VIRTIO_OFFLOADS: [(usize, &str); 5] =
    [(0, "tx-checksum"), (1, "rx-checksum"), (11, "tso"), (15, "mergeable-rx-buffers"), (22, "multiqueue")];

/// Virtual interfaces that report the speeds of those below them. Others report anything: veth always reports
/// 10 Gbit/s.
const STACKED_KINDS: [&str; 3] = ["bond", "team", "vlan"];

/// All interfaces; under a hypervisor an advertised speed proves little.
pub(crate) fn read(root: FileRoot<'_>, hypervisor: &Fact<Option<String>>) -> Vec<Nic> {
    let names = root.names(INTERFACES_DIRECTORY).into_iter();
    // `bonding_masters` is a plain file among the interfaces.
    names
        .filter(|name| root.exists(&format!("{INTERFACES_DIRECTORY}/{name}/mtu")))
        .map(|name| nic(root, name, hypervisor))
        .collect()
}

/// Whether an interface leads to the same host.
pub fn is_loopback(root: FileRoot<'_>, name: &str) -> bool {
    root.text(&format!("{INTERFACES_DIRECTORY}/{name}/type")).as_deref() == Some(LOOPBACK_TYPE)
}

fn nic(root: FileRoot<'_>, name: String, hypervisor: &Fact<Option<String>>) -> Nic {
    let file = |attribute: &str| format!("{INTERFACES_DIRECTORY}/{name}/{attribute}");
    let is_loopback = is_loopback(root, &name);
    let (driver, bits_per_second) = (driver(root, &name, is_loopback), link_speed(root, &name, is_loopback));
    Nic {
        line_rate: line_rate(root, &name, &bits_per_second, &driver, hypervisor),
        driver,
        bits_per_second,
        mtu: root.fact(&file("mtu"), |text| text.parse().ok()),
        state: root.fact(&file("operstate"), |text| match text {
            // Loopback has no operational state; the kernel prints it as unknown.
            "unknown" if is_loopback => Some("up".into()),
            "" => None,
            state => Some(state.to_owned()),
        }),
        offloads: offloads(root, &name),
        name,
    }
}

fn driver(root: FileRoot<'_>, name: &str, is_loopback: bool) -> Fact<String> {
    let link = format!("{INTERFACES_DIRECTORY}/{name}/device/driver");
    match root.link_name(&link) {
        Some(driver) => Fact::known(driver, link),
        None if is_loopback => Fact::known("loopback".into(), format!("{INTERFACES_DIRECTORY}/{name}/type")),
        None => match interface_kind(root, name) {
            Some(kind) => Fact::known(kind, format!("{INTERFACES_DIRECTORY}/{name}/uevent")),
            None => Fact::unknown(format!("{name} is virtual, without a device")),
        },
    }
}

/// `bridge`, `veth`, `vlan` of a virtual interface, where stated.
fn interface_kind(root: FileRoot<'_>, name: &str) -> Option<String> {
    value_of_key(&root.text(&format!("{INTERFACES_DIRECTORY}/{name}/uevent"))?, "DEVTYPE", '=').map(str::to_owned)
}

/// The speed that an interface advertises, in bits per second, or why it has none.
pub fn link_speed(root: FileRoot<'_>, name: &str, is_loopback: bool) -> Fact<f64> {
    if is_loopback {
        return Fact::unknown("loopback is in memory: it has no line rate");
    }
    let device = format!("{INTERFACES_DIRECTORY}/{name}/device");
    if !root.exists(&device) && !interface_kind(root, name).is_some_and(|kind| STACKED_KINDS.contains(&kind.as_str())) {
        return Fact::unknown(format!("{name} has no device: its advertised link speed is not a line rate"));
    }
    let file = format!("{INTERFACES_DIRECTORY}/{name}/speed");
    // The file cannot be read while the interface is down, and holds -1 where the driver states no speed.
    match root.read(&file).map(|text| text.parse::<i64>()) {
        Ok(Ok(megabits)) if megabits > 0 => Fact::known(megabits as f64 * 1e6, file),
        Ok(_) => Fact::unknown(format!("the driver of {name} states no speed, as is usual for virtual interfaces")),
        Err(_) => Fact::unknown(format!("{file} cannot be read: the interface is down or has no speed")),
    }
}

fn offloads(root: FileRoot<'_>, name: &str) -> Fact<Vec<String>> {
    if root.is_live() {
        return match kelvin_sys::ethtool::offloads(name) {
            Ok(names) => Fact::known(names.into_iter().map(str::to_owned).collect(), "ethtool ioctl"),
            Err(error) => Fact::unknown(format!("the driver of {name} does not answer ethtool: {error}")),
        };
    }
    let features = format!("{INTERFACES_DIRECTORY}/{name}/device/features");
    match root.text(&features).filter(|text| text.len() >= 32 && text.bytes().all(|bit| matches!(bit, b'0' | b'1'))) {
        Some(bits) => {
            let enabled = VIRTIO_OFFLOADS.iter().filter(|(bit, _)| bits.as_bytes()[*bit] == b'1');
            Fact::known(enabled.map(|(_, name)| (*name).to_owned()).collect(), features)
        }
        None => Fact::unknown("a recorded tree has no driver to ask for offloads"),
    }
}

/// The line rate of an interface in bits per second, or why its advertised speed is not one, which nothing can exceed.
///
/// A software limit taken for a line rate makes good measurements look impossible; a line rate not taken for one only costs a check. So
/// in doubt it is not.
fn line_rate(
    root: FileRoot<'_>,
    name: &str,
    advertised: &Fact<f64>,
    driver: &Fact<String>,
    hypervisor: &Fact<Option<String>>,
) -> Fact<f64> {
    match doubt_reason(root, name, driver, hypervisor).filter(|_| advertised.get().is_some()) {
        Some(reason) => Fact::unknown(format!("the advertised link speed of {name} is not a line rate: {reason}")),
        None => advertised.clone(),
    }
}

/// Why an advertised speed need not be a line rate.
fn doubt_reason(
    root: FileRoot<'_>,
    name: &str,
    driver: &Fact<String>,
    hypervisor: &Fact<Option<String>>,
) -> Option<String> {
    let file = |attribute: &str| format!("{INTERFACES_DIRECTORY}/{name}/{attribute}");
    let reason_if = |is_doubtful: bool, reason: &str| is_doubtful.then(|| reason.to_owned());
    let reasons = [
        reason_if(!root.exists(&file("device")), "it is virtual and reports the speed of the interfaces below it"),
        reason_if(root.text(&file("type")).as_deref() != Some(ETHERNET_TYPE), "it is not Ethernet"),
        reason_if(root.exists(&file("wireless")) || root.exists(&file("phy80211")), "it is wireless"),
        match driver.get() {
            None => Some("its driver is unknown".into()),
            Some(driver) => known_name("network_driver", |key| key == driver)
                .map(|_| format!("the driver {driver} reports a speed that the host or the other device sets")),
        },
        // Traffic between two functions of a card never leaves the card.
        reason_if(root.exists(&file("device/physfn")), "it is a virtual function of a shared card"),
        reason_if(
            root.text(&file("device/sriov_numvfs")).is_some_and(|functions| functions != "0"),
            "its card has virtual functions, and traffic among them does not cross the line",
        ),
        match hypervisor {
            Fact::Known { value: None, .. } => None,
            Fact::Known { value: Some(hypervisor), .. } => {
                Some(format!("this is a virtual machine ({hypervisor}), and its card may be emulated"))
            }
            Fact::Unknown { reason } => Some(format!("whether a hypervisor emulates it is unknown ({reason})")),
        },
    ];
    reasons.into_iter().flatten().next()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// An interface in sysfs: files with their content, and the driver of its device, if any.
    fn nic_line_rate(driver: Option<&str>, files: &[(&str, &str)], hypervisor: Fact<Option<String>>) -> Fact<f64> {
        let tree = tempfile::tempdir().unwrap();
        let interface = tree.path().join("sys/class/net/eth0");
        fs::create_dir_all(&interface).unwrap();
        if let Some(driver) = driver {
            fs::create_dir_all(interface.join("device")).unwrap();
            symlink(format!("../../../../bus/pci/drivers/{driver}"), interface.join("device/driver")).unwrap();
        }
        for (file, text) in [("type", "1"), ("mtu", "1500"), ("speed", "10000")].iter().chain(files) {
            let path = interface.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let [nic] = &super::read(FileRoot::new(tree.path()), &hypervisor)[..] else { panic!("one interface") };
        nic.line_rate.clone()
    }

    fn no_hypervisor() -> Fact<Option<String>> {
        Fact::known(None, "a test")
    }

    #[test]
    fn bare_metal_nic_has_line_rate() {
        for driver in ["ixgbe", "mlx5_core", "e1000e", "r8152"] {
            assert_eq!(nic_line_rate(Some(driver), &[], no_hypervisor()).get(), Some(&10e9), "{driver}");
        }
        let rate = nic_line_rate(Some("ixgbe"), &[("device/sriov_numvfs", "0")], no_hypervisor());
        assert_eq!(rate, Fact::known(10e9, "/sys/class/net/eth0/speed"));
    }

    #[test]
    fn missing_line_rate_has_reason() {
        let reason = |driver, files: &[(&str, &str)], hypervisor| {
            let rate = nic_line_rate(driver, files, hypervisor);
            assert_eq!(rate.get(), None, "{driver:?} {files:?}");
            rate.source_or_reason().to_owned()
        };
        let assert_contains = |reason: String, words: &str| assert!(reason.contains(words), "{reason}");
        let no_files: &[(&str, &str)] = &[];
        assert_contains(reason(None, &[("uevent", "DEVTYPE=veth")], no_hypervisor()), "has no device");
        assert_contains(reason(None, &[("uevent", "DEVTYPE=bridge")], no_hypervisor()), "has no device");
        assert_contains(
            reason(None, &[("uevent", "DEVTYPE=bond")], no_hypervisor()),
            "the speed of the interfaces below it",
        );
        assert_contains(
            reason(None, &[("uevent", "DEVTYPE=vlan")], no_hypervisor()),
            "the speed of the interfaces below it",
        );
        for driver in ["virtio_net", "vif", "hv_netvsc", "vmxnet3", "ena", "gve", "cdc_ncm"] {
            assert_contains(reason(Some(driver), no_files, no_hypervisor()), driver);
        }
        assert_contains(reason(Some("ixgbe"), &[("type", "32")], no_hypervisor()), "not Ethernet");
        assert_contains(reason(Some("ixgbe"), &[("type", "772")], no_hypervisor()), "no line rate");
        assert_contains(reason(Some("iwlwifi"), &[("wireless/status", "0")], no_hypervisor()), "wireless");
        assert_contains(
            reason(Some("iavf"), &[("device/physfn/vendor", "0x8086")], no_hypervisor()),
            "virtual function of a shared card",
        );
        assert_contains(
            reason(Some("ixgbe"), &[("device/sriov_numvfs", "4")], no_hypervisor()),
            "has virtual functions",
        );
        assert_contains(reason(Some("ixgbe"), &[("speed", "-1")], no_hypervisor()), "states no speed");
        // A gigabit card emulated by QEMU carries many gigabits.
        assert_contains(
            reason(Some("e1000"), no_files, Fact::known(Some("KVM".into()), "a test")),
            "a virtual machine (KVM)",
        );
        assert_contains(reason(Some("e1000"), no_files, Fact::unknown("no cpuid")), "is unknown (no cpuid)");
    }
}
