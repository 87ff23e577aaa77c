//! Network interfaces as sysfs and their drivers describe them.

use kelvin_core::{Fact, Nic};

use crate::line_rate::{self, INTERFACES_DIRECTORY};
use crate::root::FileRoot;

/// `ARPHRD_LOOPBACK` of `linux/if_arp.h`, in the file `type`.
const LOOPBACK_TYPE: &str = "772";
/// Bits of the negotiated features of a virtio network device (virtio 1.3, 5.1.3), and ethtool's names of the offloads.
const VIRTIO_OFFLOADS: [(usize, &str); 5] =
    [(0, "tx-checksum"), (1, "rx-checksum"), (11, "tso"), (15, "mergeable-rx-buffers"), (22, "multiqueue")];

/// Virtual interfaces that report the speeds of those below them. Others report anything: veth says 10 Gbit/s, whatever
/// it carries.
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
    let file = |what: &str| format!("{INTERFACES_DIRECTORY}/{name}/{what}");
    let loopback = is_loopback(root, &name);
    let (driver, bits_per_second) = (driver(root, &name, loopback), link_speed(root, &name, loopback));
    Nic {
        line_rate: line_rate::line_rate_of(root, &name, &bits_per_second, &driver, hypervisor),
        driver,
        bits_per_second,
        mtu: root.fact(&file("mtu"), |text| text.parse().ok()),
        state: root.fact(&file("operstate"), |text| match text {
            // Loopback has no operational state; the kernel prints it as unknown.
            "unknown" if loopback => Some("up".into()),
            "" => None,
            state => Some(state.to_owned()),
        }),
        offloads: offloads(root, &name),
        name,
    }
}

fn driver(root: FileRoot<'_>, name: &str, loopback: bool) -> Fact<String> {
    let link = format!("{INTERFACES_DIRECTORY}/{name}/device/driver");
    match root.link_name(&link) {
        Some(driver) => Fact::known(driver, link),
        None if loopback => Fact::known("loopback".into(), format!("{INTERFACES_DIRECTORY}/{name}/type")),
        None => match interface_kind(root, name) {
            Some(kind) => Fact::known(kind, format!("{INTERFACES_DIRECTORY}/{name}/uevent")),
            None => Fact::unknown(format!("{name} is virtual, without a device")),
        },
    }
}

/// `bridge`, `veth`, `vlan` of a virtual interface, where stated.
fn interface_kind(root: FileRoot<'_>, name: &str) -> Option<String> {
    crate::root::value_of_key(&root.text(&format!("{INTERFACES_DIRECTORY}/{name}/uevent"))?, "DEVTYPE", '=')
        .map(str::to_owned)
}

/// The speed that an interface advertises, in bits per second, or why it has none.
pub fn link_speed(root: FileRoot<'_>, name: &str, loopback: bool) -> Fact<f64> {
    if loopback {
        return Fact::unknown("loopback is in memory: it has no line rate");
    }
    let behind = format!("{INTERFACES_DIRECTORY}/{name}/device");
    if !root.exists(&behind) && !interface_kind(root, name).is_some_and(|kind| STACKED_KINDS.contains(&kind.as_str())) {
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
            Ok(on) => Fact::known(on.into_iter().map(str::to_owned).collect(), "ethtool ioctl"),
            Err(error) => Fact::unknown(format!("the driver of {name} does not answer ethtool: {error}")),
        };
    }
    let features = format!("{INTERFACES_DIRECTORY}/{name}/device/features");
    match root.text(&features).filter(|text| text.len() >= 32 && text.bytes().all(|bit| matches!(bit, b'0' | b'1'))) {
        Some(bits) => {
            let on = VIRTIO_OFFLOADS.iter().filter(|(bit, _)| bits.as_bytes()[*bit] == b'1');
            Fact::known(on.map(|(_, name)| (*name).to_owned()).collect(), features)
        }
        None => Fact::unknown("a recorded tree has no driver to ask for offloads"),
    }
}
