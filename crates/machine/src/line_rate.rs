//! Whether an interface's advertised link speed is a physical line rate, which nothing can exceed.
//!
//! A software limit taken for a line rate makes good measurements look impossible; a line rate not taken for one only
//! costs a check. So in doubt it is not.

use kelvin_core::Fact;

use crate::root::FileRoot;

/// Where the kernel shows network interfaces.
pub(crate) const INTERFACES_DIRECTORY: &str = "/sys/class/net";

/// `ARPHRD_ETHER` of `linux/if_arp.h`, in the file `type`.
const ETHERNET_TYPE: &str = "1";

/// Drivers of devices without a physical line, or whose speed is made up elsewhere: by the host's virtual switch
/// (virtio_net, vif of Xen, hv_netvsc, vmxnet3, ena, gve, mana, ibmveth, ibmvnic), by a phone or another machine on a
/// USB or Thunderbolt cable, or by a simulation.
const VIRTUAL_INTERFACE_KINDS: [&str; 15] = [
    "virtio_net",
    "vif",
    "xen-netfront",
    "hv_netvsc",
    "vmxnet3",
    "ena",
    "gve",
    "mana",
    "ibmveth",
    "ibmvnic",
    "cdc_ether",
    "cdc_ncm",
    "rndis_host",
    "thunderbolt-net",
    "netdevsim",
];

/// The line rate of an interface in bits per second, or why its advertised speed is not one.
pub(crate) fn line_rate_of(
    root: FileRoot<'_>,
    name: &str,
    advertised: &Fact<f64>,
    driver: &Fact<String>,
    hypervisor: &Fact<Option<String>>,
) -> Fact<f64> {
    match doubt_reason(root, name, driver, hypervisor).filter(|_| advertised.get().is_some()) {
        Some(why) => Fact::unknown(format!("the advertised link speed of {name} is not a line rate: {why}")),
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
    let file = |what: &str| format!("{INTERFACES_DIRECTORY}/{name}/{what}");
    if !root.exists(&file("device")) {
        return Some("it is virtual and reports the speed of the interfaces below it".into());
    }
    if root.text(&file("type")).as_deref() != Some(ETHERNET_TYPE) {
        return Some("it is not Ethernet".into());
    }
    if root.exists(&file("wireless")) || root.exists(&file("phy80211")) {
        return Some("it is wireless".into());
    }
    let Some(driver) = driver.get() else { return Some("its driver is unknown".into()) };
    if VIRTUAL_INTERFACE_KINDS.contains(&driver.as_str()) {
        return Some(format!("the driver {driver} reports a speed that the host or the other device sets"));
    }
    // Traffic between two functions of a card never leaves the card.
    if root.exists(&file("device/physfn")) {
        return Some("it is a virtual function of a shared card".into());
    }
    if root.text(&file("device/sriov_numvfs")).is_some_and(|functions| functions != "0") {
        return Some("its card has virtual functions, and traffic among them does not cross the line".into());
    }
    match hypervisor {
        Fact::Known { value: None, .. } => None,
        Fact::Known { value: Some(hypervisor), .. } => {
            Some(format!("this is a virtual machine ({hypervisor}), and its card may be emulated"))
        }
        Fact::Unknown { reason } => Some(format!("whether a hypervisor emulates it is unknown ({reason})")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// An interface in sysfs: files with their content, and the driver of its device, if any.
    fn line_rate(driver: Option<&str>, files: &[(&str, &str)], hypervisor: Fact<Option<String>>) -> Fact<f64> {
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
        let [nic] = &crate::nics::read(FileRoot::new(tree.path()), &hypervisor)[..] else { panic!("one interface") };
        nic.line_rate.clone()
    }

    fn no_hypervisor() -> Fact<Option<String>> {
        Fact::known(None, "a test")
    }

    #[test]
    fn bare_metal_nic_has_line_rate() {
        for driver in ["ixgbe", "mlx5_core", "e1000e", "r8152"] {
            assert_eq!(line_rate(Some(driver), &[], no_hypervisor()).get(), Some(&10e9), "{driver}");
        }
        let rate = line_rate(Some("ixgbe"), &[("device/sriov_numvfs", "0")], no_hypervisor());
        assert_eq!(rate, Fact::known(10e9, "/sys/class/net/eth0/speed"));
    }

    #[test]
    fn missing_line_rate_has_reason() {
        let reason = |driver, files: &[(&str, &str)], hypervisor| {
            let rate = line_rate(driver, files, hypervisor);
            assert_eq!(rate.get(), None, "{driver:?} {files:?}");
            rate.source_or_reason().to_owned()
        };
        let says = |reason: String, words: &str| assert!(reason.contains(words), "{reason}");
        let no_files: &[(&str, &str)] = &[];
        says(reason(None, &[("uevent", "DEVTYPE=veth")], no_hypervisor()), "has no device");
        says(reason(None, &[("uevent", "DEVTYPE=bridge")], no_hypervisor()), "has no device");
        says(reason(None, &[("uevent", "DEVTYPE=bond")], no_hypervisor()), "the speed of the interfaces below it");
        says(reason(None, &[("uevent", "DEVTYPE=vlan")], no_hypervisor()), "the speed of the interfaces below it");
        for driver in ["virtio_net", "vif", "hv_netvsc", "vmxnet3", "ena", "gve", "cdc_ncm"] {
            says(reason(Some(driver), no_files, no_hypervisor()), driver);
        }
        says(reason(Some("ixgbe"), &[("type", "32")], no_hypervisor()), "not Ethernet");
        says(reason(Some("ixgbe"), &[("type", "772")], no_hypervisor()), "no line rate");
        says(reason(Some("iwlwifi"), &[("wireless/status", "0")], no_hypervisor()), "wireless");
        says(
            reason(Some("iavf"), &[("device/physfn/vendor", "0x8086")], no_hypervisor()),
            "virtual function of a shared card",
        );
        says(reason(Some("ixgbe"), &[("device/sriov_numvfs", "4")], no_hypervisor()), "has virtual functions");
        says(reason(Some("ixgbe"), &[("speed", "-1")], no_hypervisor()), "states no speed");
        // A gigabit card emulated by QEMU carries many gigabits.
        says(reason(Some("e1000"), no_files, Fact::known(Some("KVM".into()), "a test")), "a virtual machine (KVM)");
        says(reason(Some("e1000"), no_files, Fact::unknown("no cpuid")), "is unknown (no cpuid)");
    }
}
