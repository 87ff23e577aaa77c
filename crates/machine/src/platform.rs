//! What is underneath: hardware, hypervisor, container.

use kelvin_core::{Bios, Chassis, Fact, Name, Platform};

use crate::container;
use crate::cpu;
use crate::cpuid::Cpuid;
use crate::identity;
use crate::root::{FileRoot, known_name, non_empty, value_of_key};

const DMI_DIRECTORY: &str = "/sys/class/dmi/id";
const DEVICE_TREE_DIRECTORY: &str = "/sys/firmware/devicetree/base";
const VIRTIO_DEVICES: &str = "/sys/bus/virtio/devices";

pub(crate) fn read(root: FileRoot<'_>, architecture: Name, cpuid: &Cpuid) -> Platform {
    Platform {
        product: product(root),
        hypervisor: hypervisor(root, architecture, cpuid),
        container: container::container(root),
        chassis: chassis(root),
        bios: bios(root),
        host: identity::host(root),
    }
}

/// The firmware's type of enclosure. Source: SMBIOS reference specification 3.7, 7.4.1.
fn chassis(root: FileRoot<'_>) -> Fact<Chassis> {
    root.fact(&format!("{DMI_DIRECTORY}/chassis_type"), |text| match text.parse::<u8>().ok()? {
        3..=7 | 13 | 15 | 16 | 24 | 34..=36 => Some(Chassis::Desktop),
        8..=11 | 14 | 30..=32 => Some(Chassis::Laptop),
        17 | 23 | 25 | 28 | 29 => Some(Chassis::Server),
        _ => None,
    })
}

/// The boot firmware, by its SMBIOS type 0 as the kernel shows it; unknown where the platform has none.
fn bios(root: FileRoot<'_>) -> Fact<Bios> {
    let field = |file: &str| root.read(&format!("{DMI_DIRECTORY}/bios_{file}")).map(|text| non_empty(&text));
    let (vendor, version, date) = (field("vendor"), field("version"), field("date"));
    match (&vendor, &version, &date) {
        (Err(_), Err(reason), Err(_)) => Fact::unknown(reason.as_str()),
        (Err(_) | Ok(None), Err(_) | Ok(None), Err(_) | Ok(None)) => {
            Fact::unknown(format!("{DMI_DIRECTORY} names no BIOS, as in some virtual machines"))
        }
        _ => {
            let date = date.ok().flatten().map(|date| iso_date(&date).unwrap_or(date));
            Fact::known(Bios { vendor: vendor.ok().flatten(), version: version.ok().flatten(), date }, DMI_DIRECTORY)
        }
    }
}

/// `2023-12-19` of `12/19/2023`, the form that SMBIOS prescribes; `None` of another one.
fn iso_date(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let [month, day, year] = parts[..] else { return None };
    let is_number = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(month, 2) && is_number(day, 2) && is_number(year, 4)).then(|| format!("{year}-{month}-{day}"))
}

fn product(root: FileRoot<'_>) -> Fact<String> {
    let dmi = |file: &str| root.text(&format!("{DMI_DIRECTORY}/{file}")).filter(|text| !text.is_empty());
    match (dmi("sys_vendor"), dmi("product_name")) {
        (Some(vendor), Some(product)) => Fact::known(format!("{vendor} {product}"), DMI_DIRECTORY),
        (Some(name), None) | (None, Some(name)) => Fact::known(name, DMI_DIRECTORY),
        (None, None) => match root.text(&format!("{DEVICE_TREE_DIRECTORY}/model")) {
            Some(model) => {
                Fact::known(model.trim_end_matches('\0').to_owned(), format!("{DEVICE_TREE_DIRECTORY}/model"))
            }
            None => Fact::unknown(format!(
                "there is neither {DMI_DIRECTORY} nor {DEVICE_TREE_DIRECTORY}/model: {}",
                root.absence_reason(DMI_DIRECTORY, "the firmware states no model")
            )),
        },
    }
}

fn hypervisor(root: FileRoot<'_>, architecture: Name, cpuid: &Cpuid) -> Fact<Option<String>> {
    if let Some(signature) = cpuid.hypervisor_signature() {
        let name = known_name("hypervisor_signature", |key| signature.starts_with(key)).map(str::to_owned);
        return Fact::known(Some(name.unwrap_or(signature)), "cpuid leaf 40000000h");
    }
    if let Some(kind) = root.text("/sys/hypervisor/type").filter(|text| !text.is_empty()) {
        let name = if kind == "xen" { String::from("Xen") } else { kind };
        return Fact::known(Some(name), "/sys/hypervisor/type");
    }
    let product = product(root);
    let product_name = product.get().filter(|name| !name.contains(".metal"));
    let hypervisor_name =
        product_name.and_then(|name| known_name("virtual_product", |beginning| name.starts_with(beginning)));
    let hypervisor_name = hypervisor_name.map(str::to_owned);
    match architecture.as_str() {
        "x86_64" => x86_hypervisor(root, cpuid, &product, hypervisor_name),
        "s390x" => s390_hypervisor(root),
        _ => other_hypervisor(root, &product, hypervisor_name),
    }
}

/// On s390x the machine states the control programs between it and the kernel; without one, its own firmware parts it.
fn s390_hypervisor(root: FileRoot<'_>) -> Fact<Option<String>> {
    const SYSTEM: &str = "/proc/sysinfo";
    root.fact(SYSTEM, |text| {
        let program = value_of_key(text, "VM00 Control Program", ':').map(|program| match program.contains("KVM") {
            true => "KVM".to_owned(),
            // `z/VM    6.4.0`
            false => program.split_ascii_whitespace().next().unwrap_or("z/VM").to_owned(),
        });
        program.or_else(|| value_of_key(text, "LPAR Number", ':').map(|_| "PR/SM".to_owned())).map(Some)
    })
}

/// A cloud that rents out whole machines under the product name of its virtual ones.
const ALSO_OF_METAL: &str = "Alibaba Cloud";

/// On x86-64 the processor states whether there is a hypervisor, unless the hypervisor hides that: firmware of a virtual machine still
/// names it.
fn x86_hypervisor(
    root: FileRoot<'_>,
    cpuid: &Cpuid,
    product: &Fact<String>,
    hypervisor_name: Option<String>,
) -> Fact<Option<String>> {
    let flag = match cpuid.hypervisor_bit() {
        Some(bit) => Ok((bit, "cpuid leaf 1")),
        None => root.read(cpu::CPUINFO).map(|text| {
            let flags = value_of_key(&text, "flags", ':').unwrap_or_default();
            (flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"), "flags in /proc/cpuinfo")
        }),
    };
    match flag {
        Ok((true, source)) => {
            Fact::known(Some(hypervisor_name.unwrap_or_else(|| "one that does not name itself".into())), source)
        }
        Ok((false, source)) => {
            match hypervisor_name.filter(|_| !product.get().is_some_and(|name| name.starts_with(ALSO_OF_METAL))) {
                Some(name) => Fact::known(Some(name), format!("{DMI_DIRECTORY}; no hypervisor in {source}")),
                None => Fact::known(None, source),
            }
        }
        Err(reason) => Fact::unknown(reason),
    }
}

/// Elsewhere only firmware and devices do.
fn other_hypervisor(
    root: FileRoot<'_>,
    product: &Fact<String>,
    hypervisor_name: Option<String>,
) -> Fact<Option<String>> {
    if hypervisor_name.is_some() {
        return Fact::known(hypervisor_name, DMI_DIRECTORY);
    }
    let tree = format!("{DEVICE_TREE_DIRECTORY}/hypervisor/compatible");
    if let Some(compatible) = root.text(&tree) {
        let name = compatible.trim_end_matches('\0').split('\0').next().unwrap_or_default().to_owned();
        return Fact::known(Some(name), tree);
    }
    if !root.names(VIRTIO_DEVICES).is_empty() {
        return Fact::known(Some("one with virtio devices, not named".into()), VIRTIO_DEVICES);
    }
    match product {
        Fact::Known { source, .. } => Fact::known(None, format!("{source} names no hypervisor, no virtio devices")),
        Fact::Unknown { reason } => Fact::unknown(reason.as_str()),
    }
}
