//! Hosts and containers as their groups and mounts show them, and what recorders of other projects leave out.

use std::path::Path;

use kelvin_machine::read;

/// A tree of these files.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = tree.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    tree
}

#[test]
fn firmware_reveals_hypervisor_without_cpuid_flag() {
    let hypervisor_from = |flags: &str, vendor: &str, product: &str| {
        let cpuinfo = format!("processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu tsc lm {flags}\n\n");
        let files = [
            ("proc/cpuinfo", cpuinfo.as_str()),
            ("sys/class/dmi/id/sys_vendor", vendor),
            ("sys/class/dmi/id/product_name", product),
        ];
        let machine = read(tree(&files).path());
        machine.platform.hypervisor.get().unwrap_or_else(|| panic!("{vendor} {product}")).clone()
    };
    for (vendor, product, hypervisor) in [
        ("innotek GmbH", "VirtualBox", Some("VirtualBox")),
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", Some("KVM or QEMU")),
        ("VMware, Inc.", "VMware Virtual Platform", Some("VMware")),
        ("Xen", "HVM domU", Some("Xen")),
        ("Amazon EC2", "m5.large", Some("KVM (Nitro)")),
        ("Amazon EC2", "c7i.metal-24xl", None),
        ("Google", "Google Compute Engine", Some("KVM")),
        ("Alibaba Cloud", "Alibaba Cloud ECS", None),
        ("Dell Inc.", "PowerEdge R740", None),
    ] {
        assert_eq!(hypervisor_from("", vendor, product).as_deref(), hypervisor, "{vendor} {product}");
    }
    assert_eq!(hypervisor_from("hypervisor", "Alibaba Cloud", "Alibaba Cloud ECS").as_deref(), Some("KVM"));
}

const DISK_MOUNT: &str = "ext4 /dev/sda1 rw";
const SHORT_CONTAINER_ID: &str = "0f3a9c1d2e4b";
const CONTAINER_ID: &str = "0f3a9c1d2e4b5a6978877665544332211000ffeeddccbbaa9988776655443322";

/// The container of a process in a group, with this root file system and other files.
fn container(cgroup: &str, mount: &str, other_files: &[(&str, &str)]) -> Option<String> {
    let mounts = format!("22 1 0:20 / / rw - {mount}\n");
    let files = [
        ("proc/self/cgroup", cgroup),
        ("proc/self/mountinfo", mounts.as_str()),
        ("proc/self/uid_map", "0 0 4294967295"),
    ];
    let tree = tree(&[&files[..], other_files].concat());
    let fact = read(tree.path()).platform.container;
    fact.get().unwrap_or_else(|| panic!("{cgroup}: {fact:?}")).clone()
}

#[test]
fn hosts_are_not_containers() {
    let session = "0::/user.slice/user-1000.slice/session-2.scope";
    let roots = [
        (
            session,
            "overlay composefs ro,lowerdir+=/run/ostree/.private/cfsroot-lower,datadir+=/sysroot/ostree/repo/objects",
        ),
        (
            session,
            "overlay composefs ro,seclabel,lowerdir=/run/ostree/.private/cfsroot-lower::/sysroot/ostree/repo/objects",
        ),
        (
            "0::/services/dropbear",
            "overlay overlayfs:/overlay rw,lowerdir=/,upperdir=/overlay/upper,workdir=/overlay/work",
        ),
        ("0::/", "overlay overlayfs:/overlay rw,noatime,lowerdir=/,upperdir=/overlay/upper,workdir=/overlay/work"),
        ("0::/init.scope", "overlay /cow rw,lowerdir=/filesystem.squashfs,upperdir=/cow/upper,workdir=/cow/work"),
        (session, "overlay airootfs rw,lowerdir=/run/archiso/airootfs,upperdir=/run/archiso/cowspace/x/upperdir"),
        ("0::/", "overlay overlay rw,lowerdir=/run/live/rootfs/filesystem.squashfs/,upperdir=/run/live/overlay/rw"),
        (session, "overlay LiveOS_rootfs rw,lowerdir=/run/rootfsbase,upperdir=/run/overlayfs,workdir=/run/ovlwork"),
        (session, "overlay overlayroot rw,lowerdir=/media/root-ro,upperdir=/media/root-rw/overlay"),
        (session, "overlay overlay rw,lowerdir=/some/where,upperdir=/some/where/else"),
        ("0::/", "overlay overlay rw,lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work"),
        ("0::/", "overlay overlay rw,lowerdir=/memory/images/a:/memory/images/b,upperdir=/memory/changes"),
        (session, DISK_MOUNT),
    ];
    for (cgroup, mount) in roots {
        assert_eq!(container(cgroup, mount, &[]), None, "{cgroup} {mount}");
    }
    let services = [
        "0::/system.slice/docker.service",
        "0::/system.slice/docker.socket",
        "0::/system.slice/lxcfs.service",
        "0::/system.slice/lxc.service",
        "0::/system.slice/lxc-net.service",
        "0::/system.slice/containerd.service",
        "0::/system.slice/gardener-api.service",
        "0::/system.slice/garden.service",
        "0::/system.slice/kubepods-exporter.service",
        "0::/docker.slice/docker-cleanup.service",
        "0::/kubepods.slice/kubepods-exporter.slice/exporter.service",
        "0::/system.slice/podman-libpod-prune.service",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-desktop.service",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-docker-abcdef.scope",
        "0::/machine.slice/libvirtd-lxc.service",
        "0::/machine.slice/machine-qemu\\x2d1\\x2dguest.scope/libvirt",
        "0::/machine.slice/systemd-nspawn@build.service/supervisor",
        "0::/lxc.monitor/c1",
        "0::/lxc.monitor.c1",
        "12:pids:/system.slice/docker.service\n1:name=systemd:/system.slice/docker.service",
        &format!("0::/machine.slice/libpod-conmon-{CONTAINER_ID}.scope"),
    ];
    for cgroup in services {
        assert_eq!(container(cgroup, DISK_MOUNT, &[]), None, "{cgroup}");
    }
}

#[test]
fn container_manager_is_named_by_cgroup() {
    let pod = "pod1f0c6d2a-7d4e-4d8b-9a51-0c2f7e9b1a23";
    let slice = "kubepods-burstable-pod1f0c6d2a_7d4e_4d8b_9a51_0c2f7e9b1a23.slice";
    let groups = [
        (format!("12:pids:/docker/{CONTAINER_ID}\n0::/system.slice/containerd.service"), "docker"),
        (format!("0::/system.slice/docker-{CONTAINER_ID}.scope"), "docker"),
        (format!("0::/docker/{SHORT_CONTAINER_ID}"), "docker"),
        (
            format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{CONTAINER_ID}.scope/init"),
            "docker",
        ),
        ("0::/docker/buildkit/zq3x0k".into(), "docker"),
        (format!("4:memory:/system.slice:docker:{CONTAINER_ID}"), "docker"),
        (format!("0::/machine.slice/libpod-{CONTAINER_ID}.scope/container"), "podman"),
        (format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{CONTAINER_ID}.scope"), "podman"),
        (format!("9:pids:/libpod_parent/libpod-{CONTAINER_ID}"), "podman"),
        (
            format!("0::/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{CONTAINER_ID}.scope"),
            "kubernetes",
        ),
        (
            format!(
                "0::/kubepods.slice/kubepods-burstable.slice/{slice}/crio-{CONTAINER_ID}.scope/system.slice/a.service"
            ),
            "kubernetes",
        ),
        (
            format!("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-{slice}/cri-containerd-{CONTAINER_ID}.scope"),
            "kubernetes",
        ),
        (
            format!("0::/docker/{CONTAINER_ID}/kubelet.slice/kubelet-kubepods.slice/kubelet-{slice}/x.scope"),
            "kubernetes",
        ),
        (format!("11:memory:/kubepods/besteffort/{pod}/{CONTAINER_ID}"), "kubernetes"),
        (format!("11:memory:/kubelet/kubepods/{pod}/{CONTAINER_ID}"), "kubernetes"),
        (format!("0::/system.slice/containerd.service/{slice}:cri-containerd:{CONTAINER_ID}"), "kubernetes"),
        (format!("0::/system.slice/nerdctl-{CONTAINER_ID}.scope"), "containerd"),
        (format!("0::/ecs/0123456789abcdef0123456789abcdef/{CONTAINER_ID}"), "one that does not name itself"),
        ("0::/lxc/c1/init.scope".into(), "lxc"),
        ("12:pids:/lxc/100".into(), "lxc"),
        ("0::/lxc.payload.web/system.slice/nginx.service".into(), "lxc"),
        ("0::/lxc.payload/web".into(), "lxc"),
        ("0::/machine.slice/machine-build.scope/payload/init.scope".into(), "systemd-nspawn"),
        ("0::/machine.slice/systemd-nspawn@build.service/payload".into(), "systemd-nspawn"),
        ("5:cpu:/garden/0c2f7e9b-1a23-4d8b-9a51-7d4e1f0c6d2a".into(), "garden"),
    ];
    for (cgroup, name) in groups {
        assert_eq!(container(&cgroup, DISK_MOUNT, &[]).as_deref(), Some(name), "{cgroup}");
    }
}

/// With a namespace of groups all paths are `/`, and there may be no marker.
#[test]
fn namespaced_containers_are_found_by_mounts() {
    let overlay = |options: &str| container("0::/", &format!("overlay overlay rw,{options}"), &[]);
    let docker =
        "lowerdir=/var/lib/docker/overlay2/l/A:/var/lib/docker/overlay2/l/B,upperdir=/var/lib/docker/overlay2/x/diff";
    assert_eq!(overlay(docker).as_deref(), Some("docker"));
    let podman = "lowerdir=/var/lib/containers/storage/overlay/l/A,upperdir=/var/lib/containers/storage/overlay/x/diff";
    assert_eq!(overlay(podman).as_deref(), Some("podman"));
    let snapshots = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots";
    let containerd = format!("lowerdir={snapshots}/1/fs,upperdir={snapshots}/2/fs,workdir={snapshots}/2/work");
    assert_eq!(overlay(&containerd).as_deref(), Some("containerd"));
    let singularity = "lowerdir=/usr/local/var/singularity/mnt/session/overlay-lowerdir,upperdir=/x";
    assert_eq!(overlay(singularity).as_deref(), Some("singularity"));
    // A root of another kind, and a file that the manager keeps.
    let bound = |source: &str, target: &str| {
        container(
            "0::/",
            &format!("btrfs /dev/sda2 rw,subvol=/x\n23 22 8:2 {source} {target} rw - ext4 /dev/sda1 rw"),
            &[],
        )
    };
    let hosts = format!("/var/lib/docker/containers/{CONTAINER_ID}/hosts");
    assert_eq!(bound(&hosts, "/etc/hosts").as_deref(), Some("docker"));
    assert_eq!(bound(&hosts, "/mnt/hosts"), None);
    assert_eq!(bound("/var/lib/kubelet/pods/x/etc-hosts", "/etc/hosts").as_deref(), Some("kubernetes"));
    let other_disk = container("0::/user.slice", "squashfs /dev/loop0 ro", &[]);
    assert_eq!(other_disk, None);
    let manager = container("0::/user.slice", "tmpfs tmpfs rw", &[(".singularity.d/runscript", "")]);
    assert_eq!(manager.as_deref(), Some("singularity"));
    let marked = |mount: &str, file: &str| container("0::/", mount, &[(file, "")]);
    assert_eq!(marked("btrfs rpool/x rw", ".dockerenv").as_deref(), Some("docker"));
    assert_eq!(marked("xfs none rw", "run/.containerenv").as_deref(), Some("podman"));
    assert_eq!(marked("overlay /cow rw,lowerdir=/filesystem.squashfs,upperdir=/cow/upper", ".dockerenv"), None);
    let declared = |file: &str, text: &str| container("0::/", DISK_MOUNT, &[(file, text)]);
    assert_eq!(declared("run/host/container-manager", "systemd-nspawn\n").as_deref(), Some("systemd-nspawn"));
    assert_eq!(declared("proc/1/environ", "A=b\0container=lxc\0").as_deref(), Some("lxc"));
}

/// What is found of the root of a process in a mount namespace of its own, and of that of process 1 if that can be read.
fn in_own_namespace(cgroup: &str, mount: &str, first: Option<&str>) -> kelvin_core::Fact<Option<String>> {
    let mounts = format!("700 600 {mount}\n");
    let mut files =
        vec![("proc/self/cgroup", cgroup), ("proc/self/mountinfo", &mounts), ("proc/self/uid_map", "0 0 4294967295")];
    files.extend(first.map(|first| ("proc/1/mountinfo", first)));
    read(tree(&files).path()).platform.container
}

/// A mount namespace of its own is one of a container or of a service: without other evidence neither is known, for any group.
#[test]
fn unshared_root_is_unknown() {
    let overlay = "0:20 / / rw - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir=/u/diff";
    for (cgroup, mount) in [
        ("0::/", overlay),
        ("0::/system.slice/cron.service", overlay),
        ("0::/user.slice/user-1000.slice/session-2.scope", overlay),
        ("0::/jobs/17", overlay),
        ("0::/jobs/17", "8:1 /srv/images/17 / rw - ext4 /dev/sda1 rw"),
        ("0::/jobs/17", "0:44 / / rw - tmpfs tmpfs rw"),
    ] {
        let open = in_own_namespace(cgroup, mount, None);
        assert!(open.get().is_none() && open.source_or_reason().contains("nothing says whose"), "{cgroup}: {open:?}");
    }
    assert_eq!(in_own_namespace("0::/", "8:1 / / rw - ext4 /dev/sda1 rw", None).get(), Some(&None));
}

#[test]
fn service_sharing_init_root_is_host() {
    let (group, overlay) = ("0::/system.slice/cron.service", "0:20 / / rw - overlay /cow rw,upperdir=/cow/upper");
    let subvolume = "0:31 /root / rw - btrfs /dev/sda3 rw,subvol=/root";
    for root in [overlay, subvolume] {
        let first = format!("22 1 {root}\n23 22 0:21 / /proc rw - proc proc rw\n");
        assert_eq!(in_own_namespace(group, root, Some(&first)).get(), Some(&None), "{root}");
        // Process 1 of a container, or another root than that of the host's.
        for other in [format!("700 600 {root}\n"), "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n".into()] {
            assert!(in_own_namespace(group, root, Some(&other)).get().is_none(), "{other}");
        }
    }
}

/// The limits of a process in these groups, with these mounts and files below /sys/fs/cgroup.
fn limits(groups: &str, mounts: &str, files: &[(&str, &str)]) -> kelvin_core::Limits {
    let mut named_files = vec![("proc/self/cgroup".to_owned(), groups), ("proc/self/mountinfo".to_owned(), mounts)];
    named_files.extend(files.iter().map(|(name, text)| (format!("sys/fs/cgroup/{name}"), *text)));
    let file_slices: Vec<(&str, &str)> = named_files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    read(tree(&file_slices).path()).limits
}

const V2_MOUNTS: &str = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
const V1_MOUNTS: &str = "31 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  32 25 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

#[test]
fn unreadable_limit_is_unknown() {
    let limits_with =
        |cpu: &str, memory: &str| limits("0::/a", V2_MOUNTS, &[("a/cpu.max", cpu), ("a/memory.max", memory)]);
    assert_eq!(limits_with("max 100000", "max").cpu_quota.get(), Some(&None));
    for text in ["abc", "50000", "50000 0"] {
        let limits = limits_with(text, "abc");
        assert!(limits.cpu_quota.get().is_none() && limits.memory_bytes.get().is_none(), "{text}: {limits:?}");
        let reason = limits.cpu_quota.source_or_reason();
        assert_eq!(reason, format!("/sys/fs/cgroup/a/cpu.max says {text:?}, which is not meaningful"));
    }
    let tiny_quota = limits_with("1000 1000000", "max");
    assert_eq!(tiny_quota.cpu_quota.get(), Some(&Some(0.001)));
    // Of version 1 the period, and the whole group, may not be recorded.
    let groups = "5:cpu:/a/b\n6:memory:/a/b\n";
    let quota = ("cpu/a/b/cpu.cfs_quota_us", "150000");
    let limits_v1 = limits(groups, V1_MOUNTS, &[quota]);
    assert!(limits_v1.cpu_quota.source_or_reason().ends_with("with what cpu.cfs_period_us says"), "{limits_v1:?}");
    assert!(limits_v1.memory_bytes.get().is_none(), "{limits_v1:?}");
    let complete_files =
        [quota, ("cpu/a/b/cpu.cfs_period_us", "100000"), ("memory/a/b/memory.limit_in_bytes", "1048576")];
    let limits_v1 = limits(groups, V1_MOUNTS, &complete_files);
    assert_eq!(limits_v1.cpu_quota.get(), Some(&Some(1.5)));
    assert_eq!(limits_v1.memory_bytes.get(), Some(&Some(1 << 20)));
}

#[test]
fn quota_of_other_cgroup_is_ignored() {
    let files = [("other/cpu.max", "50000 100000"), ("cpu.max", "70000 100000")];
    let quota = limits("0::/../../other", V2_MOUNTS, &files).cpu_quota;
    assert!(quota.get().is_none() && quota.source_or_reason().contains("outside of what"), "{quota:?}");
}

#[test]
fn allowed_cpus_fall_back_to_mask() {
    let allowed_cpus = |status: &str| read(tree(&[("proc/self/status", status)]).path()).topology.allowed;
    let mask = allowed_cpus("Name:\tx\nCpus_allowed:\tffffffff,ffffffff,ffffffff\n");
    assert_eq!(mask.get(), Some(&(0..96).collect()));
    let missing = allowed_cpus("Name:\tx\n");
    assert_eq!(missing.source_or_reason(), "/proc/self/status has no line 'Cpus_allowed_list'");
}

#[test]
fn missing_line_is_reported() {
    let memory = read(tree(&[("proc/meminfo", "MemTotal: 3885396 kB\n")]).path()).memory;
    assert_eq!(memory.total_bytes.get(), Some(&(3_885_396 << 10)));
    assert_eq!(memory.swap_bytes.source_or_reason(), "/proc/meminfo has no line 'SwapTotal'");
}

#[test]
fn architecture_is_inferred_from_cpuinfo_keys() {
    for (info, name) in [
        ("processor: 0\nvendor_id: GenuineIntel\nflags: fpu vme de pse tsc msr\n", "i686"),
        ("processor: 0\nvendor_id: GenuineIntel\nflags: fpu tsc lm\n", "x86_64"),
        ("processor: 0\nFeatures: half thumb\nCPU implementer: 0x41\nCPU architecture: 7\nCPU part: 0xc07\n", "arm"),
        ("processor: 0\nFeatures: half thumb\nCPU implementer: 0x41\nCPU architecture: 8\nCPU part: 0xd08\n", "arm"),
        ("processor: 0\nFeatures: fp asimd\nCPU implementer: 0x41\nCPU architecture: 8\nCPU part: 0xd08\n", "aarch64"),
        ("processor: 0\nhart: 1\nisa: rv64imafdc\n", "riscv64"),
        ("processor: 0\ncpu: POWER9, altivec supported\n", "unknown"),
        ("system type: MediaTek MT7621\nprocessor: 0\ncpu model: MIPS 1004Kc V2.15\n", "unknown"),
        ("processor: 0\nvendor_id: E8C-SWTX\ncpu family: 4\n", "unknown"),
    ] {
        let machine = read(tree(&[("proc/cpuinfo", info)]).path());
        assert_eq!(machine.architecture, *name, "{info}");
        let page = machine.memory.page_bytes;
        assert_eq!(page.get().is_some(), name == "x86_64", "{info}: {page:?}");
    }
}

#[test]
fn frequency_in_model_name_is_not_redacted() {
    let info = "processor: 0\nvendor_id: Shanghai\nmodel name: ZHAOXIN KaiXian KX-6640MA@2.2+GHz\nflags: lm\n";
    let machine = read(tree(&[("proc/cpuinfo", info)]).path());
    assert_eq!(machine.cpu.nominal_hz.get(), Some(&2.2e9));
}

/// Four CPUs that are online, each of a core of its own.
const CPUS: &str = "sys/devices/system/cpu";

fn allowed_cpus(online: &str, listed: &str) -> Result<Vec<u32>, String> {
    let status = format!("Cpus_allowed_list:\t{listed}\n");
    let tree = tree(&[(&format!("{CPUS}/online"), online), ("proc/self/status", &status)]);
    let fact = read(tree.path()).topology.allowed;
    fact.get().cloned().ok_or_else(|| fact.source_or_reason().to_owned())
}

#[test]
fn offline_cpus_are_not_allowed() {
    assert_eq!(allowed_cpus("0-3", "0-127"), Ok(vec![0, 1, 2, 3]));
    assert_eq!(allowed_cpus("0,2,4,6", "0-7"), Ok(vec![0, 2, 4, 6]));
    assert_eq!(allowed_cpus("0-3", "2-3"), Ok(vec![2, 3]));
    let reason = allowed_cpus("0-3", "8-15").unwrap_err();
    assert!(reason.contains("8-15") && reason.contains("0-3"), "{reason}");
}

#[test]
fn live_allowed_cpus_come_from_kernel() {
    let topology = read(Path::new("/")).topology;
    let expected = kelvin_sys::cpu::process_affinity(std::process::id()).unwrap();
    assert_eq!(topology.allowed.get(), Some(&expected));
    assert_eq!(topology.allowed.source_or_reason(), "sched_getaffinity(2)");
}

/// A core of two threads and a node, as recorders keep them.
fn recorded_tree(threads: (&str, &str), cpus: (&str, &str), online: bool) -> tempfile::TempDir {
    let node = "sys/devices/system/node/node0";
    let mut files = vec![
        (format!("{CPUS}/online"), "0-1\n\0"),
        (format!("{CPUS}/cpu0/cache/index0/type"), "Unified"),
        (format!("{CPUS}/cpu0/cache/index0/level"), "2"),
        (format!("{CPUS}/cpu0/cache/index0/size"), "512K"),
        (format!("{CPUS}/cpu0/cache/index0/shared_cpu_map"), "00000000,00000003"),
        (format!("{node}/{}", cpus.0), cpus.1),
        (format!("{node}/meminfo"), "Node 0 MemTotal: 1024 kB"),
        (format!("{node}/distance"), "10"),
    ];
    for cpu in 0..2 {
        files.push((format!("{CPUS}/cpu{cpu}/topology/physical_package_id"), "0"));
        files.push((format!("{CPUS}/cpu{cpu}/topology/{}", threads.0), threads.1));
    }
    if online {
        files.push(("sys/devices/system/node/online".into(), "0\n\0"));
    }
    tree(&files.iter().map(|(name, text)| (name.as_str(), *text)).collect::<Vec<_>>())
}

#[test]
fn nul_terminated_recordings_are_read() {
    let formats = [
        (("thread_siblings", "3"), ("cpumap", "00000000,00000003")),
        (("core_cpus", "00000003\n\0"), ("cpumap", "3\n\0")),
        (("core_cpus_list", "0-1\n\0"), ("cpulist", "0-1\n\0")),
        (("thread_siblings_list", "0-1"), ("cpulist", "0-1")),
    ];
    for (threads, cpus) in formats {
        for online in [false, true] {
            let topology = read(recorded_tree(threads, cpus, online).path()).topology;
            assert_eq!(topology.cores.get(), Some(&1), "{threads:?}: {:?}", topology.cores);
            assert_eq!(topology.siblings.get(), Some(&vec![vec![0, 1]; 2]));
            let nodes = topology.nodes.get().unwrap_or_else(|| panic!("{cpus:?}: {:?}", topology.nodes));
            assert_eq!((nodes.len(), &nodes[0].cpus), (1, &vec![0, 1]), "{cpus:?}");
            assert_eq!(topology.caches.get().unwrap()[0].shared_by, [0, 1]);
        }
    }
}

#[test]
fn unknown_fact_names_missing_file() {
    let tree = recorded_tree(("threads", "3"), ("cpus", "3"), false);
    let topology = read(tree.path()).topology;
    let [cores, nodes] = [topology.cores.source_or_reason(), topology.nodes.source_or_reason()];
    assert!(cores.contains("cpu0/topology lacks"), "{cores}");
    assert!(nodes.contains("node0 states neither"), "{nodes}");
    let empty = tempfile::tempdir().unwrap();
    let nodes = read(empty.path()).topology.nodes;
    assert!(nodes.source_or_reason().contains("there are no nodes"), "{nodes:?}");
}

#[test]
fn online_cpus_fall_back_to_directories() {
    let topology = |files: &[(&str, &str)]| read(tree(files).path()).topology;
    let cpus = |number: u32, state: &str| (format!("{CPUS}/cpu{number}/online"), state.to_owned());
    let files = [cpus(1, "1"), cpus(2, "0"), (format!("{CPUS}/cpu0/topology/physical_package_id"), "0".into())];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(topology(&files).online.get(), Some(&vec![0, 1]));
}

/// Telephones and boards: the first three cores of one cluster, the fourth of another.
#[test]
fn clusters_of_arm_are_no_sockets() {
    let sockets = |cluster: Option<&str>, other_files: &[(&str, &str)]| {
        let mut files = vec![("proc/cpuinfo".to_owned(), "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd46\n")];
        files.push((format!("{CPUS}/online"), "0-3"));
        for (cpu, core_cpus, socket) in [(0, "0", "0"), (1, "1", "0"), (2, "2", "0"), (3, "3", "1")] {
            let topology = format!("{CPUS}/cpu{cpu}/topology");
            files.push((format!("{topology}/physical_package_id"), socket));
            files.push((format!("{topology}/core_cpus_list"), core_cpus));
            files.extend(cluster.map(|cluster| (format!("{topology}/cluster_id"), cluster)));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        read(tree(&[&files[..], other_files].concat()).path()).topology.sockets
    };
    for cluster in [None, Some("-1")] {
        let fact = sockets(cluster, &[]);
        assert!(fact.source_or_reason().contains("cluster"), "{fact:?}");
    }
    assert_eq!(sockets(Some("7"), &[]).get(), Some(&2), "this kernel numbers both");
    let firmware = [("sys/firmware/acpi/tables/PPTT", "PPTT")];
    assert_eq!(sockets(None, &firmware).get(), Some(&2), "ACPI names sockets");
    let x86 = [("proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\n")];
    assert_eq!(sockets(None, &x86).get(), Some(&2));
}

#[test]
fn s390_is_not_x86() {
    let info = "vendor_id       : IBM/S390\n# processors    : 2\nfeatures\t: esan3 zarch stfle\n\n\
                processor 0: version = FF,  identification = 0133E8,  machine = 2964\n";
    let machine = |system: &str| {
        let mut files = vec![("proc/cpuinfo", info)];
        if !system.is_empty() {
            files.push(("proc/sysinfo", system));
        }
        read(tree(&files).path())
    };
    let logical = "Manufacturer: IBM\nLPAR Number: 37\nLPAR Name: X\n";
    for (system, name) in [
        (format!("{logical}VM00 Name: GUEST\nVM00 Control Program: KVM/Linux\n"), "KVM"),
        (format!("{logical}VM00 Name: GUEST\nVM00 Control Program: z/VM    6.4.0\n"), "z/VM"),
        (logical.to_owned(), "PR/SM"),
    ] {
        let guest = machine(&system);
        assert_eq!(guest.architecture, *"s390x");
        assert_eq!(guest.platform.hypervisor.get(), Some(&Some(name.to_owned())), "{system}");
        assert!(!guest.memory.page_bytes.source_or_reason().contains("x86"), "{:?}", guest.memory.page_bytes);
    }
    assert!(machine("").platform.hypervisor.get().is_none(), "nothing is known without /proc/sysinfo");
}

#[test]
fn own_kernel_or_store_root_is_container() {
    const GVISOR_KERNEL: &str = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n";
    const GENERIC_KERNEL: &str = "Linux version 4.4.0-210-generic #242-Ubuntu SMP Fri Apr 16 09:57:56 UTC 2021\n";
    let release = |text| [("proc/sys/kernel/osrelease", text)];
    for (other_files, name) in [
        (&release("4.4.0-19041-Microsoft\n")[..], Some("wsl")),
        (&release("5.15.90.1-microsoft-standard-WSL2\n"), None),
        (&[("proc/vz/veinfo", "")], Some("openvz")),
        (&[("proc/vz/version", ""), ("proc/bc/0/resources", "")], None),
        (&[("proc/version", GVISOR_KERNEL)], Some("gvisor")),
        (&[("proc/version", GENERIC_KERNEL)], None),
        (&[("run/systemd/container", "systemd-nspawn\n")], Some("systemd-nspawn")),
        (&[("run/systemd/container", "\n")], None),
        // One word of any text.
        (&[("run/systemd/container", "evil\u{1b}[31m\nname")], Some("evil")),
        (&[("proc/1/environ", "PATH=/bin\0container=lxc\0")], Some("lxc")),
    ] {
        assert_eq!(container("0::/", "9p none rw,trans=fd", other_files).as_deref(), name, "{other_files:?}");
    }
    for (root, name) in [
        ("/var/lib/docker/vfs/dir/0f3a", Some("docker")),
        ("/@/var/lib/docker/btrfs/subvolumes/0f3a", Some("docker")),
        ("/home/u/.local/share/containers/storage/vfs/dir/0f3a", Some("podman")),
        ("/var/lib/machines/debian", Some("systemd-nspawn")),
        ("/var/lib/lxc/web/rootfs", Some("lxc")),
        ("/root/ostree/deploy/fedora/deploy/0f3a.0", None),
        ("/srv/chroot/debian", None),
    ] {
        let mounts = format!("22 20 8:1 {root} / rw - ext4 /dev/sda1 rw\n");
        let tree = tree(&[("proc/self/cgroup", "0::/"), ("proc/self/mountinfo", &mounts)]);
        // A directory that is no store proves neither a container nor a host.
        let fact = read(tree.path()).platform.container;
        assert_eq!(fact.get().and_then(Option::as_deref), name, "{root}");
        assert_eq!(fact.get().is_some(), name.is_some(), "{root}: {fact:?}");
    }
    let long_name = "a".repeat(5000);
    let manager = container("0::/", DISK_MOUNT, &[("run/systemd/container", &long_name)]);
    assert!(manager.is_some_and(|name| name.len() <= 40));
}

#[test]
fn old_arm_cpuinfo_applies_to_all_cpus() {
    let text = "Processor\t: ARMv7 Processor rev 4 (v7l)\nprocessor\t: 0\nBogoMIPS\t: 1694.10\n\nprocessor\t: 1\nBogoMIPS\t: 1694.10\n\n\
                Features\t: swp half thumb neon\nCPU implementer\t: 0x41\nCPU architecture: 7\nCPU part\t: 0xc0f\nCPU revision\t: 4\n\n\
                Hardware\t: SAMSUNG EXYNOS5\n";
    let machine = read(tree(&[("proc/cpuinfo", text)]).path());
    assert_eq!(machine.architecture, *"arm");
    assert_eq!(machine.cpu.vendor.get().map(String::as_str), Some("ARM"));
    assert_eq!((machine.cpu.model.get(), machine.cpu.stepping.get()), (Some(&0xc0f), Some(&4)));
}

/// Each took minutes, or all memory.
#[test]
fn huge_files_are_read_quickly() {
    let mounts: String =
        (0..100_000).map(|number| format!("9 1 8:1 / /m/{number:07} rw - ext4 /dev/sda1 rw\n")).collect();
    let options: Vec<String> = (0..400_000).map(|number| format!("o{number}")).collect();
    let options = format!("9 1 8:1 / / rw - ext4 /dev/sda1 {}\n", options.join(","));
    let groups = format!("0::{}\n", "/a".repeat(1_000_000));
    let processors: String =
        (0..100_000).map(|number| format!("processor: {number}\nphysical id: 0\ncore id: 0\n\n")).collect();
    let machine = |files: &[(&str, &str)]| read(tree(files).path());
    assert_eq!(machine(&[("proc/self/mountinfo", &mounts)]).mounts.len(), 100_000);
    assert!(machine(&[("proc/self/mountinfo", &options)]).mounts[0].options.ends_with(",o399999"));
    let root = "30 25 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
    assert_eq!(machine(&[("proc/self/mountinfo", root), ("proc/self/cgroup", &groups)]).mounts.len(), 1);
    let parsed = machine(&[("proc/cpuinfo", &processors)]);
    assert_eq!(parsed.topology.online.get().map(Vec::len), Some(100_000));
    assert!(parsed.topology.siblings.get().is_none() && parsed.topology.cores.get().is_none());
}
