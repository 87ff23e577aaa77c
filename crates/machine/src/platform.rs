//! What is underneath: hardware, hypervisor, container.

use kelvin_model::{Fact, Name, Platform};

use crate::cpu;
use crate::cpuid::Cpuid;
use crate::disks::{self, MountLine};
use crate::text::{Root, value};

const DMI: &str = "/sys/class/dmi/id";
const DEVICE_TREE: &str = "/sys/firmware/devicetree/base";
const VIRTIO: &str = "/sys/bus/virtio/devices";

pub(crate) fn read(root: Root<'_>, architecture: Name, cpuid: &Cpuid) -> Platform {
    Platform { product: product(root), hypervisor: hypervisor(root, architecture, cpuid), container: container(root) }
}

fn product(root: Root<'_>) -> Fact<String> {
    let dmi = |file: &str| root.text(&format!("{DMI}/{file}")).filter(|text| !text.is_empty());
    match (dmi("sys_vendor"), dmi("product_name")) {
        (Some(vendor), Some(product)) => Fact::known(format!("{vendor} {product}"), DMI),
        (Some(one), None) | (None, Some(one)) => Fact::known(one, DMI),
        (None, None) => match root.text(&format!("{DEVICE_TREE}/model")) {
            Some(model) => Fact::known(model.trim_end_matches('\0').to_owned(), format!("{DEVICE_TREE}/model")),
            None => {
                Fact::unknown(format!("there is neither {DMI} nor {DEVICE_TREE}/model: the firmware states no model"))
            }
        },
    }
}

/// Hypervisor signatures in cpuid leaf 4000_0000h.
const SIGNATURES: [(&str, &str); 14] = [
    ("KVMKVMKVM", "KVM"),
    ("Linux KVM Hv", "KVM"),
    ("VMwareVMware", "VMware"),
    ("Microsoft Hv", "Hyper-V"),
    ("XenVMMXenVMM", "Xen"),
    ("bhyve bhyve", "bhyve"),
    ("TCGTCGTCGTCG", "QEMU (TCG)"),
    ("VBoxVBoxVBox", "VirtualBox"),
    ("prl hyperv", "Parallels"),
    ("lrpepyh vr", "Parallels"),
    ("ACRNACRNACRN", "ACRN"),
    ("QNXQVMBSQG", "QNX"),
    ("Jailhouse", "Jailhouse"),
    ("SRESRESRESRE", "SRE"),
];

/// Prefixes of `vendor product` in DMI that only virtual machines have.
const PRODUCTS: [(&str, &str); 13] = [
    ("QEMU", "KVM or QEMU"),
    ("KVM", "KVM"),
    ("Amazon EC2", "KVM (Nitro)"),
    ("Google Google Compute Engine", "KVM"),
    ("VMware", "VMware"),
    ("innotek GmbH VirtualBox", "VirtualBox"),
    ("Microsoft Corporation Virtual Machine", "Hyper-V"),
    ("Xen", "Xen"),
    ("Parallels", "Parallels"),
    ("OpenStack", "KVM or QEMU"),
    ("Alibaba Cloud", "KVM"),
    ("Apple Inc. Apple Virtualization", "Apple Virtualization"),
    ("DigitalOcean Droplet", "KVM"),
];

fn hypervisor(root: Root<'_>, architecture: Name, cpuid: &Cpuid) -> Fact<Option<String>> {
    if let Some(signature) = cpuid.hypervisor_signature() {
        let known = SIGNATURES.iter().find(|(own, _)| signature.starts_with(own)).map(|(_, name)| (*name).to_owned());
        return Fact::known(Some(known.unwrap_or(signature)), "cpuid leaf 40000000h");
    }
    if let Some(kind) = root.text("/sys/hypervisor/type").filter(|text| !text.is_empty()) {
        let name = if kind == "xen" { String::from("Xen") } else { kind };
        return Fact::known(Some(name), "/sys/hypervisor/type");
    }
    let product = product(root);
    let named = product.get().filter(|name| !name.contains(".metal")).and_then(|name| virtual_product(name));
    if architecture == "x86_64" { x86_hypervisor(root, cpuid, named) } else { other_hypervisor(root, &product, named) }
}

fn virtual_product(product: &str) -> Option<String> {
    PRODUCTS.iter().find(|(beginning, _)| product.starts_with(beginning)).map(|(_, name)| (*name).to_owned())
}

/// On x86-64 the processor states whether there is a hypervisor.
fn x86_hypervisor(root: Root<'_>, cpuid: &Cpuid, named: Option<String>) -> Fact<Option<String>> {
    let flag = match cpuid.hypervisor_bit() {
        Some(bit) => Ok((bit, "cpuid leaf 1")),
        None => root.read(cpu::CPUINFO).map(|text| {
            let flags = value(&text, "flags", ':').unwrap_or_default();
            (flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"), "flags in /proc/cpuinfo")
        }),
    };
    match flag {
        Ok((true, source)) => {
            Fact::known(Some(named.unwrap_or_else(|| "one that does not name itself".into())), source)
        }
        Ok((false, source)) => Fact::known(None, source),
        Err(reason) => Fact::unknown(reason),
    }
}

/// Elsewhere only firmware and devices do.
fn other_hypervisor(root: Root<'_>, product: &Fact<String>, named: Option<String>) -> Fact<Option<String>> {
    if named.is_some() {
        return Fact::known(named, DMI);
    }
    let tree = format!("{DEVICE_TREE}/hypervisor/compatible");
    if let Some(compatible) = root.text(&tree) {
        let name = compatible.trim_end_matches('\0').split('\0').next().unwrap_or_default().to_owned();
        return Fact::known(Some(name), tree);
    }
    if !root.names(VIRTIO).is_empty() {
        return Fact::known(Some("one with virtio devices, not named".into()), VIRTIO);
    }
    match product {
        Fact::Known { source, .. } => Fact::known(None, format!("{source} names no hypervisor, no virtio devices")),
        Fact::Unknown { reason } => Fact::unknown(reason.as_str()),
    }
}

/// Words in cgroup paths that identify their creator.
const CGROUP_WORDS: [(&str, &str); 7] = [
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
    ("machine.slice", "systemd-nspawn"),
    ("garden", "garden"),
];

fn container(root: Root<'_>) -> Fact<Option<String>> {
    if let Some((name, source)) = declared_container(root) {
        return Fact::known(Some(name), source);
    }
    let cgroup = root.read("/proc/self/cgroup");
    let paths = cgroup.clone().unwrap_or_default();
    if let Some((_, name)) = CGROUP_WORDS.iter().find(|(word, _)| paths.contains(word)) {
        return Fact::known(Some((*name).into()), "/proc/self/cgroup");
    }
    let mounts = disks::mount_lines(root);
    let base = mounts.iter().rfind(|mount| mount.target == "/");
    let marker = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    if let Some((file, name)) = marker.into_iter().find(|(file, _)| root.exists(file)) {
        return match base.filter(|mount| is_whole_disk(mount)) {
            // A container image unpacked onto a virtual machine's disk keeps its marker.
            Some(mount) => Fact::known(
                None,
                format!("{file} exists, but / is a whole {} on {}: the file is a left-over", mount.kind, mount.source),
            ),
            None => Fact::known(Some(name.into()), file),
        };
    }
    if base.is_some_and(|mount| mount.kind == "overlay") {
        return Fact::known(Some("one that does not name itself".into()), "/ is an overlay in /proc/self/mountinfo");
    }
    if root.text("/proc/self/uid_map").is_some_and(|map| !is_whole_uid_map(&map)) {
        return Fact::known(Some("a user namespace".into()), "/proc/self/uid_map");
    }
    match (cgroup, base) {
        (Ok(_), Some(_)) => Fact::known(None, "/proc/self/cgroup and /proc/self/mountinfo show none"),
        (Err(reason), _) => Fact::unknown(reason),
        (_, None) => Fact::unknown("/proc/self/mountinfo shows no root file system"),
    }
}

/// A container manager that identifies itself in the environment of process 1 or in a file of systemd.
fn declared_container(root: Root<'_>) -> Option<(String, &'static str)> {
    if let Some(name) = root.text("/run/systemd/container").filter(|name| !name.is_empty()) {
        return Some((name, "/run/systemd/container"));
    }
    let environment = root.bytes("/proc/1/environ").ok()?;
    let name = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"container="))?;
    (!name.is_empty()).then(|| (String::from_utf8_lossy(name).into_owned(), "/proc/1/environ"))
}

/// Whether a mount is a whole file system on a block device, which no container manager uses as a root.
fn is_whole_disk(mount: &MountLine) -> bool {
    mount.root == "/" && mount.source.starts_with("/dev/") && !mount.source.starts_with("/dev/mapper/docker")
}

/// `0 0 4294967295`: user ids are not mapped.
fn is_whole_uid_map(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}
