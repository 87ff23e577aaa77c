//! The container that this process is in, if any.
//!
//! A host runs services called docker or lxcfs, and may have an overlay as its root. So a group names a container only where its path has
//! what a container manager writes there for each container, and an overlay only where its directories are those of one.

use kelvin_core::Fact;

use kelvin_sys::procfs::{CgroupMembership, MountInfo};

use crate::disks;
use crate::root::{FileRoot, known_name};

/// The name of the container manager, or `None` on a host.
pub(crate) fn container(root: FileRoot<'_>) -> Fact<Option<String>> {
    let cgroup = root.read("/proc/self/cgroup");
    let mut groups = cgroup.as_deref().unwrap_or_default().lines().filter_map(CgroupMembership::parse);
    let group_manager =
        groups.find_map(|group| manager_of_cgroup(&group.path)).map(|name| (name.to_owned(), "/proc/self/cgroup"));
    if let Some((name, source)) = declared_manager(root).or(group_manager) {
        return Fact::known(Some(name), source);
    }
    let mounts = disks::mount_lines(root);
    let base = mounts.iter().rfind(|mount| mount.target == "/");
    let marker = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/.singularity.d", "singularity")];
    if let Some((file, name)) = marker.into_iter().find(|(file, _)| root.exists(file)) {
        return match base.filter(|mount| is_whole_disk(mount) || is_host_overlay(mount)) {
            // A container image unpacked onto a virtual machine's disk keeps its marker.
            Some(mount) => Fact::known(
                None,
                format!("{file} exists, but / is a whole {} on {}: the file is a left-over", mount.kind, mount.source),
            ),
            None => Fact::known(Some(name.into()), file),
        };
    }
    let overlay = base.filter(|mount| mount.kind == "overlay").and_then(overlay_store);
    let store = base.and_then(|mount| known_name("container_root", |part| mount.root.contains(part)));
    let user_map = root.text("/proc/self/uid_map");
    // `0 0 4294967295`: user ids are not mapped.
    let is_mapped = user_map.is_some_and(|map| !map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    let signs = [
        mounts.iter().find_map(manager_of_bound_file).map(|name| (name, "files below /etc in /proc/self/mountinfo")),
        overlay.map(|name| (name, "/ is an overlay in /proc/self/mountinfo")),
        store.map(|name| (name, "/ is a directory of its store in /proc/self/mountinfo")),
        kernel_manager(root),
        is_mapped.then_some(("a user namespace", "/proc/self/uid_map")),
    ];
    if let Some((name, source)) = signs.into_iter().flatten().next() {
        return Fact::known(Some(name.into()), source);
    }
    match (cgroup, base) {
        (Err(reason), _) => Fact::unknown(reason),
        (_, None) => Fact::unknown("/proc/self/mountinfo shows no root file system"),
        (_, Some(base)) if is_in_first_namespace(base) || is_whole_disk(base) => {
            Fact::known(None, "/proc/self/cgroup and /proc/self/mountinfo show none")
        }
        (_, Some(base)) if shares_root_with_init(root, base) => {
            Fact::known(None, "/ is that of process 1 of the host, in /proc/1/mountinfo")
        }
        (_, Some(base)) => Fact::unknown(format!(
            "/ is {} {} in a mount namespace of its own, and nothing says whose: a container's, or a service's on a host",
            if base.kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" },
            base.kind
        )),
    }
}

/// A container manager that identifies itself in a file of systemd or in the environment of process 1.
fn declared_manager(root: FileRoot<'_>) -> Option<(String, &'static str)> {
    for file in ["/run/host/container-manager", "/run/systemd/container"] {
        if let Some(name) = root.text(file).as_deref().and_then(first_word) {
            return Some((name, file));
        }
    }
    let environment = root.bytes("/proc/1/environ").ok()?;
    let manager = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"container="))?;
    first_word(&String::from_utf8_lossy(manager)).map(|name| (name, "/proc/1/environ"))
}

/// The name that a text begins with: one word, as managers have.
fn first_word(text: &str) -> Option<String> {
    const MAX_NAME_LENGTH: usize = 40;
    let is_of_word = |letter: &char| letter.is_ascii_alphanumeric() || "-_.:/".contains(*letter);
    let word: String = text.trim().chars().take_while(is_of_word).take(MAX_NAME_LENGTH).collect();
    (!word.is_empty()).then_some(word)
}

/// What the kernel shows itself: the first Linux in Windows is Windows' own kernel (the second is a virtual machine with one of Linux, in lower
/// case), in OpenVZ only a container lacks /proc/bc, and gVisor is a kernel for one container, which states the version that it stands for.
fn kernel_manager(root: FileRoot<'_>) -> Option<(&'static str, &'static str)> {
    const RELEASE: &str = "/proc/sys/kernel/osrelease";
    const VERSION: &str = "/proc/version";
    let release = root.text(RELEASE).unwrap_or_default();
    if release.ends_with("-Microsoft") {
        return Some(("wsl", RELEASE));
    }
    if root.exists("/proc/vz") && !root.exists("/proc/bc") {
        return Some(("openvz", "/proc/vz"));
    }
    let is_gvisor = root.text(VERSION).is_some_and(|text| text.ends_with("#1 SMP Sun Jan 10 15:06:54 PST 2016"));
    is_gvisor.then_some(("gvisor", VERSION))
}

/// The manager of the container that a group belongs to: the innermost part that is written for one container.
fn manager_of_cgroup(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if is_kubernetes_pod(&parts) {
        return Some("kubernetes");
    }
    (0..parts.len()).rev().find_map(|index| manager_of_part(&parts, index))
}

fn manager_of_part(parts: &[&str], index: usize) -> Option<&'static str> {
    let (part, before) = (parts[index], parts[..index].last().copied());
    let known_manager = |name: &str| known_name("container_cgroup", |key| key == name);
    // runc with systemd's paths not expanded: `system.slice:docker:0f3a...`.
    if let [.., name, identifier] = part.split(':').collect::<Vec<_>>()[..]
        && is_container_id(identifier)
    {
        return known_manager(name);
    }
    let unit = part.strip_suffix(".scope").unwrap_or(part);
    if let Some((name, identifier)) = unit.rsplit_once('-')
        && is_container_id(identifier)
        && let Some(manager) = known_manager(name)
    {
        return Some(manager);
    }
    match (before, part) {
        (Some(parent), _) if is_container_id(part) && known_manager(parent).is_some() => known_manager(parent),
        (Some(_), _) if is_container_id(part) && part.len() == 64 => Some("one that does not name itself"),
        // BuildKit's own groups, and those of LXC: `/lxc/NAME`, `/lxc.payload.NAME`; its monitors are on the host.
        (Some("buildkit"), _) if parts[..index - 1].last() == Some(&"docker") => Some("docker"),
        (Some("lxc" | "lxc.payload"), _) => Some("lxc"),
        _ if part.strip_prefix("lxc.payload.").is_some_and(|name| !name.is_empty()) => Some("lxc"),
        (Some("garden"), _) => Some("garden"),
        _ if is_nspawn(part, before, parts.get(index + 1).copied()) => Some("systemd-nspawn"),
        _ => None,
    }
}

/// A machine of systemd-nspawn: its payload, and neither its supervisor nor a virtual machine of libvirt.
fn is_nspawn(part: &str, before: Option<&str>, after: Option<&str>) -> bool {
    let is_service = part.starts_with("systemd-nspawn@") && part.ends_with(".service");
    let machine = part.strip_prefix("machine-").filter(|name| name.ends_with(".scope"));
    let is_machine = machine.is_some_and(|name| !name.starts_with("qemu")) && before == Some("machine.slice");
    after != Some("supervisor") && (is_machine || is_service && after.is_some())
}

/// A pod of a kubelet: `/kubepods/burstable/podUID/...`, or the same as slices.
fn is_kubernetes_pod(parts: &[&str]) -> bool {
    // kind gives its kubelet a group of its own: `kubelet-kubepods.slice`.
    let is_root = |part: &&str| part.strip_suffix(".slice").unwrap_or(part).rsplit('-').next() == Some("kubepods");
    let root_index = parts.iter().position(is_root);
    let pod = |part: &str| {
        // systemd's names have underscores in the identifier, as dashes part slices.
        let slice = part.strip_suffix(".slice").filter(|slice| slice.split('-').any(|word| word == "kubepods"));
        let last = slice.and_then(|slice| slice.rsplit('-').next()).unwrap_or(part);
        last.strip_prefix("pod").is_some_and(|identifier| is_container_id(&identifier.replace(['-', '_'], "")))
    };
    // Before version 1.27 containerd's own service holds them where it does not know systemd's paths.
    root_index.is_some_and(|index| parts[index..].iter().any(|part| pod(part)))
        || parts.iter().any(|part| part.starts_with("kubepods") && part.contains(":cri-containerd:"))
}

/// The identifier of a container or of a pod: hexadecimal digits, 64 or 32 of them, or 12 in short.
fn is_container_id(text: &str) -> bool {
    text.len() >= 12
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        && text.bytes().any(|byte| byte.is_ascii_digit())
}

fn manager_of_bound_file(mount: &MountInfo) -> Option<&'static str> {
    let is_bound = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"].contains(&mount.target.as_str());
    known_name("container_bound_file", |part| is_bound && mount.root.contains(part))
}

/// The mount that the kernel makes first, in the mount namespace of process 1 of a host: its root lies in it. Each further namespace has
/// a copy of it, and mounts of numbers of their own.
const FIRST_MOUNT_ID: u64 = 1;

fn is_in_first_namespace(mount: &MountInfo) -> bool {
    mount.parent == FIRST_MOUNT_ID
}

/// Whether the root is an overlay, and that of a host: of a live system, of an image that is read only, of a deployment.
fn is_host_overlay(mount: &MountInfo) -> bool {
    mount.kind == "overlay" && is_in_first_namespace(mount) && overlay_store(mount).is_none()
}

/// Whether a root in a mount namespace of its own is a copy of that of process 1, which is in the first one: as of a service that has
/// other directories of its own.
fn shares_root_with_init(root: FileRoot<'_>, mount: &MountInfo) -> bool {
    let mounts = root.text("/proc/1/mountinfo").unwrap_or_default();
    let first = mounts.lines().filter_map(MountInfo::parse).rfind(|mount| mount.target == "/");
    first.is_some_and(|first| is_in_first_namespace(&first) && first.is_same_file_system(mount))
}

fn overlay_store(mount: &MountInfo) -> Option<&'static str> {
    known_name("container_overlay", |part| mount.super_options.contains(part))
}

/// Whether a mount is a whole file system on a block device, which no container manager uses as a root.
fn is_whole_disk(mount: &MountInfo) -> bool {
    mount.root == "/" && mount.source.starts_with("/dev/") && !mount.source.starts_with("/dev/mapper/docker")
}
