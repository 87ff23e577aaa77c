//! Hides what identifies the owner of a machine or run and does not affect measurements: paths, addresses, names of
//! hosts and users, and boot parameters and mount options except those that matter. Shown only on request.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use kelvin_core::{Fact, Machine};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::root::{data_lines, known_name};

/// Replaces what is hidden.
pub const REDACTED: &str = "…";

/// What is shown below those.
const SHOWN_PATHS: [&str; 5] = ["/dev/shm", "/var/tmp", "/var/log", "/run/.containerenv", "/run/systemd/container"];

/// The cgroup mount: group names may be those of users, containers and services.
const CGROUP_ROOT: &str = "/sys/fs/cgroup/";

/// Hierarchies of version 1 below it.
const CGROUP_HIERARCHIES: [&str; 6] = ["cpu", "cpu,cpuacct", "memory", "pids", "blkio", "unified"];

/// Mount options that affect measurements: write-back, caching, the protocol of a server.
const MOUNT_OPTIONS: &str = include_str!("../data/mount_options.txt");

/// Mount sources that are not devices and identify nobody.
const SHOWN_MOUNT_SOURCES: [&str; 6] = ["none", "shm", "udev", "tmpfs", "overlay", "rootfs"];

/// Boot parameters that a run records, by what they change.
const RECORDED_PARAMETERS: &str = include_str!("../data/boot_parameters.txt");

/// The parameters of a boot line that affect measurements, in their order, and the number of others, which may name disks, hosts, users
/// and secrets.
pub fn boot_parameters(line: &str) -> (String, u32) {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    // What follows goes to init, not to the kernel.
    let kernel_word_count = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let is_recorded = |word: &&str| {
        // The kernel treats `-` and `_` alike.
        let name = word.split('=').next().unwrap_or_default().replace('-', "_");
        data_lines(RECORDED_PARAMETERS)
            .map(|parameter| parameter.replace('-', "_"))
            .any(|parameter| name == parameter || parameter.ends_with('.') && name.starts_with(&parameter))
    };
    let recorded_words: Vec<&str> = words[..kernel_word_count].iter().copied().filter(is_recorded).collect();
    let omitted = words.iter().filter(|word| **word != "--").count() - recorded_words.len();
    (recorded_words.join(" "), u32::try_from(omitted).unwrap_or(u32::MAX))
}

/// Hides what identifies the owner of a machine. What is already hidden stays so.
pub fn redact_machine(machine: &mut Machine) {
    let kernel = &mut machine.kernel;
    if let Fact::Known { value, .. } = &mut kernel.command_line {
        let (parameters, omitted) = boot_parameters(value);
        *value = parameters;
        kernel.omitted_boot_parameters = Some(kernel.omitted_boot_parameters.unwrap_or(0) + omitted);
    }
    for mount in &mut machine.mounts {
        mount.target = redact(&mount.target).into_owned();
        let is_shown = mount.source == mount.kind || SHOWN_MOUNT_SOURCES.contains(&mount.source.as_str());
        mount.source = match mount.source.starts_with("/dev/") {
            true => redact(&mount.source).into_owned(),
            false if is_shown => std::mem::take(&mut mount.source),
            false => REDACTED.into(),
        };
        let is_relevant = |option: &&str| {
            data_lines(MOUNT_OPTIONS).any(|shown_option| option.split('=').next() == Some(shown_option))
        };
        mount.options = mount.options.split(',').filter(is_relevant).collect::<Vec<_>>().join(",");
    }
}

/// The same value with [`redact`] applied to every text.
///
/// # Errors
/// If the value does not survive JSON, such as a NaN.
pub fn redact_value<T: Serialize + DeserializeOwned>(value: &T) -> serde_json::Result<T> {
    kelvin_core::json::edit(value, redact_json)
}

fn redact_json(json: &mut Value) {
    match json {
        Value::String(text) => {
            if let Cow::Owned(redacted) = redact(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact_json),
        Value::Object(fields) => fields.values_mut().for_each(redact_json),
        _ => {}
    }
}

/// A text without paths below user directories, network and hardware addresses, and `user@host`.
pub fn redact(text: &str) -> Cow<'_, str> {
    if !text.contains(['/', '@', ':']) && !text.contains("enx") && text.matches('.').count() < 3 {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    // A path with a space continues in the next word.
    let mut after_path = false;
    for part in text.split_inclusive(is_word_boundary) {
        let word = part.trim_end_matches(is_word_boundary);
        let end = &part[word.len()..];
        let redacted_word = redact_word(word);
        let continues_path = after_path && word.contains('/') && !word.starts_with('/');
        if !continues_path {
            redacted.push_str(&redacted_word);
            redacted.push_str(end);
        }
        after_path = (continues_path || redacted_word.contains(REDACTED)) && word.contains('/') && end.ends_with(' ');
    }
    if redacted == text { Cow::Borrowed(text) } else { Cow::Owned(redacted) }
}

fn is_word_boundary(c: char) -> bool {
    c.is_whitespace() || "\"'`()[]{}<>;|".contains(c)
}

/// A word, which may be a path, an address, or something before either of them: `--dir=/home/me`.
fn redact_word(word: &str) -> String {
    let trimmed = word.trim_end_matches([',', '.', ':', '!', '?']);
    let end = &word[trimmed.len()..];
    // Where something is published.
    if trimmed.starts_with("https://") || trimmed.starts_with("http://") {
        return word.to_owned();
    }
    if let Some((name, value)) = trimmed.split_once('=').filter(|(name, _)| !name.contains(['/', ':', '@'])) {
        return format!("{name}={}{end}", redact_word(value));
    }
    let redacted = match trimmed {
        path if path.starts_with('/') => redact_path(path),
        address if is_address(address) => REDACTED.into(),
        remote if remote.contains(":/") && !remote.contains("::") => format!("{REDACTED}:/{REDACTED}"),
        other if is_user_at_host(other) => REDACTED.into(),
        other => redact_interface(other),
    };
    redacted + end
}

/// An interface named after its hardware address: `enx001122334455`.
fn redact_interface(text: &str) -> String {
    const DIGITS: usize = 12;
    let is_named = |start: &usize| {
        let name = text.as_bytes().get(start + 3..start + 3 + DIGITS);
        name.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match text.match_indices("enx").map(|(start, _)| start).find(is_named) {
        Some(start) => {
            format!("{}{REDACTED}{}", &text[..start + 3], redact_interface(&text[start + 3 + DIGITS..]))
        }
        None => text.to_owned(),
    }
}

fn redact_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let [top, rest @ ..] = &parts[..] else { return path.to_owned() };
    if let Some(group) = path.strip_prefix(CGROUP_ROOT) {
        return redact_cgroup(group);
    }
    // A unit such as `/s` is not a path.
    let class = known_name("directory", |name| name == *top);
    let is_shown = match rest {
        [] => top.len() == 1 || class.is_some(),
        [_] if *top == "dev" => true,
        _ => class == Some("system") || SHOWN_PATHS.contains(&path.trim_end_matches('/')),
    };
    match class {
        _ if is_shown => redact_interface(path),
        Some("top") => format!("/{top}/{REDACTED}"),
        _ => format!("/{REDACTED}"),
    }
}

/// A path of a control group: the hierarchy, and which file of the group.
fn redact_cgroup(path: &str) -> String {
    let (hierarchy, rest) = match path.split_once('/') {
        Some((first, rest)) if CGROUP_HIERARCHIES.contains(&first) => (format!("{CGROUP_ROOT}{first}"), rest),
        _ => (CGROUP_ROOT.trim_end_matches('/').to_owned(), path),
    };
    match rest.rsplit_once('/') {
        Some((_, file)) if is_cgroup_file(file) => format!("{hierarchy}/{REDACTED}/{file}"),
        None if is_cgroup_file(rest) || CGROUP_HIERARCHIES.contains(&rest) => format!("{hierarchy}/{rest}"),
        _ => format!("{hierarchy}/{REDACTED}"),
    }
}

/// `cpu.max` and its like; names of groups may have dots too.
fn is_cgroup_file(name: &str) -> bool {
    let controllers = ["cgroup", "cpu", "cpuset", "memory", "pids", "io", "blkio"];
    let is_of_group =
        |group: &str| group.contains(['-', '@']) || group.ends_with(".slice") || group.ends_with(".scope");
    name.split_once('.').is_some_and(|(controller, _)| controllers.contains(&controller)) && !is_of_group(name)
}

/// A network address, except those that every machine has, or a hardware address.
fn is_address(text: &str) -> bool {
    let without_length = text.split('/').next().unwrap_or_default();
    let without_zone = without_length.split('%').next().unwrap_or_default();
    let address = without_zone.parse::<IpAddr>().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    let is_hardware_address = || {
        let parts: Vec<&str> = text.split([':', '-']).collect();
        parts.len() == 6
            && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    address.is_some_and(|address| !address.is_loopback() && !address.is_unspecified()) || is_hardware_address()
}

/// `user@host`; a model's frequency is no host: `KX-6640MA@2.2+GHz`.
fn is_user_at_host(text: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "._-+".contains(c));
    let is_frequency = |part: &str| part.ends_with("Hz") && part.starts_with(|first: char| first.is_ascii_digit());
    text.split_once('@').is_some_and(|(user, host)| is_name(user) && is_name(host) && !is_frequency(host))
}

#[cfg(test)]
mod tests {
    use kelvin_core::Mount;

    use super::*;

    #[test]
    fn identifying_text_is_redacted() {
        for (text, redacted) in [
            ("cannot write /home/alice/x/data: No space left", "cannot write /home/…: No space left"),
            ("cannot write /home/alice/My Files/data: No space left", "cannot write /home/… No space left"),
            ("cannot run /root/bin/fio", "cannot run /root/…"),
            ("'/projects/secret/x'", "'/…'"),
            ("--dir=/tmp/me/x", "--dir=/tmp/…"),
            ("/dev/mapper/myhost--vg-root", "/dev/…"),
            ("files.example.org:/export/me", "…:/…"),
            ("the agent at 192.0.2.7:27315 went away", "the agent at … went away"),
            ("[2001:db8::1%eth0] and fe80::1", "[…] and …"),
            ("Linux version 6.1 (alice@build.example.org) (gcc 12)", "Linux version 6.1 (…) (gcc 12)"),
            ("the driver of enx001122aabbcc states no speed", "the driver of enx… states no speed"),
            ("/sys/class/net/enx001122aabbcc/speed", "/sys/class/net/enx…/speed"),
            ("00:11:22:aa:bb:cc", "…"),
            ("/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope/cpu.max", "/sys/fs/cgroup/…/cpu.max"),
            (
                "/sys/fs/cgroup/cpu,cpuacct/docker/0123456789abcdef/cpu.cfs_quota_us",
                "/sys/fs/cgroup/cpu,cpuacct/…/cpu.cfs_quota_us",
            ),
            (
                "may not make one in /sys/fs/cgroup/user.slice/user-1000.slice (root may)",
                "may not make one in /sys/fs/cgroup/… (root may)",
            ),
        ] {
            assert_eq!(redact(text), redacted, "{text}");
            assert_eq!(redact(redacted), redacted, "what is hidden stays hidden");
        }
    }

    #[test]
    fn harmless_text_is_kept() {
        for text in [
            "/proc/cpuinfo",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes, /proc/self/cgroup",
            "/.dockerenv is there, but / is the whole of ext4 on /dev/vda: a left-over",
            "/home is on nfs4, /dev/shm is memory; /usr/bin/fio",
            "12.1 k/s and 1000 /s of 5 GB/s, pages / 2 = 3",
            "https://www.kernel.org/doc/html/latest/admin-guide/kernel-parameters.html",
            "2026-01-31T12:00:00.25Z",
            "6.18.44, 127.0.0.1:27315 and ::1, lines 12:30:38",
            "os.syscall.read (bytes=4096)",
            "read/write ratio, and/or, 4 KiB @ 3 GHz",
            "ZHAOXIN KaiXian KX-6640MA@2.2+GHz",
            "Model: 0x1.2.3",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn redacted_machine_keeps_relevant_facts() {
        let mut machine = Machine::default();
        machine.kernel.command_line = Fact::known("root=/dev/sda1 nosmt quiet".into(), "/proc/cmdline");
        let mount = |target: &str, source: &str, kind: &str, options: &str| Mount {
            target: target.into(),
            source: source.into(),
            kind: kind.into(),
            options: options.into(),
        };
        machine.mounts = vec![
            mount("/", "/dev/mapper/myhost--vg-root", "ext4", "rw,relatime,errors=remount-ro"),
            mount(
                "/home/alice",
                "nas.example.org:/alice",
                "nfs4",
                "rw,vers=4.2,rsize=1048576,clientaddr=192.0.2.7,addr=192.0.2.8",
            ),
            mount("/mnt", "//nas/alice", "cifs", "rw,username=alice,domain=EXAMPLE,uid=1000,cache=strict"),
            mount("/dev/shm", "tmpfs", "tmpfs", "rw,size=4G"),
        ];
        redact_machine(&mut machine);
        assert_eq!(machine.kernel.command_line.get().map(String::as_str), Some("nosmt"));
        assert_eq!(machine.kernel.omitted_boot_parameters, Some(2));
        let expected = [
            mount("/", "/dev/…", "ext4", "rw,relatime,errors=remount-ro"),
            mount("/home/…", "…", "nfs4", "rw,vers=4.2,rsize=1048576"),
            mount("/mnt", "…", "cifs", "rw,cache=strict"),
            mount("/dev/shm", "tmpfs", "tmpfs", "rw,size=4G"),
        ];
        assert_eq!(machine.mounts, expected);
        let redacted = machine.clone();
        redact_machine(&mut machine);
        assert_eq!(machine, redacted, "what is left out stays out, and is counted once");
        assert_eq!(redact_value(&machine).unwrap(), machine);
    }

    #[test]
    fn unlisted_parameters_are_only_counted() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1c2d-33 ro quiet mitigations=off isolcpus=2-3 nohz_full=2-3 hugepages=16 \
                    kvm-intel.ept=1 rcutree.kthread_prio=1 ip=10.0.0.5::10.0.0.1 password=x -- --addr 10.0.0.7 nosmt";
        let expected = "mitigations=off isolcpus=2-3 nohz_full=2-3 hugepages=16 kvm-intel.ept=1 rcutree.kthread_prio=1";
        assert_eq!(boot_parameters(line), (expected.into(), 9));
        assert_eq!(boot_parameters(expected), (expected.into(), 0), "what is kept stays");
        assert_eq!(boot_parameters(""), (String::new(), 0));
        assert_eq!(boot_parameters("mitigationsx=off xmitigations=off kvm=1"), (String::new(), 3));
    }

    #[test]
    fn parameter_names_are_unique() {
        let mut names: Vec<&str> = data_lines(RECORDED_PARAMETERS).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
