//! Kernel, distribution and C library.

use kelvin_core::{Fact, Kernel};

use crate::root::{FileRoot, absolute_name, boot_option, value_of_key};

const VERSION_FILE: &str = "/proc/version";
const COMMAND_LINE_FILE: &str = "/proc/cmdline";
pub(crate) const CLOCK_SOURCE_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

pub(crate) fn read(root: FileRoot<'_>) -> Kernel {
    let release = release(root);
    let config = kernel_config(root, &release);
    Kernel {
        version: root.fact(VERSION_FILE, non_empty),
        distribution: distribution(root),
        libc: libc(root),
        command_line: root.fact(COMMAND_LINE_FILE, |text| Some(text.to_owned())),
        omitted_boot_parameters: None,
        preemption: preemption(root, &config),
        timer_hz: timer_hz(&config),
        scheduler: scheduler(root, &release),
        congestion_control: root.fact("/proc/sys/net/ipv4/tcp_congestion_control", non_empty),
        clock_source: root.fact(CLOCK_SOURCE_FILE, non_empty),
        release,
    }
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn release(root: FileRoot<'_>) -> Fact<String> {
    let own = root.fact("/proc/sys/kernel/osrelease", non_empty);
    match own {
        Fact::Known { .. } => own,
        Fact::Unknown { .. } => root.fact(VERSION_FILE, |text| {
            text.strip_prefix("Linux version ")?.split_ascii_whitespace().next().map(str::to_owned)
        }),
    }
}

fn distribution(root: FileRoot<'_>) -> Fact<String> {
    let parse = |text: &str| {
        let name = value_of_key(text, "PRETTY_NAME", '=').or_else(|| value_of_key(text, "NAME", '='))?;
        non_empty(name.trim_matches(['"', '\'']))
    };
    let name = if root.exists("etc/os-release") { "etc/os-release" } else { "usr/lib/os-release" };
    root.fact(name, parse)
}

/// The system's C library, from the banner in its file, or from a musl package.
fn libc(root: FileRoot<'_>) -> Fact<String> {
    const DIRECTORIES: [&str; 6] =
        ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "usr/lib64", "usr/lib", "lib"];
    if root.is_live() && cfg!(target_env = "musl") {
        return Fact::known("musl, linked into kelvin".into(), "how kelvin was built");
    }
    for directory in DIRECTORIES {
        let file = format!("{directory}/libc.so.6");
        if let Some(version) = root.bytes(&file).ok().and_then(|bytes| glibc_banner(&bytes)) {
            return Fact::known(format!("glibc {version}"), absolute_name(&file));
        }
    }
    const PACKAGES: &str = "lib/apk/db/installed";
    let musl = root.text(PACKAGES).and_then(|text| {
        let (_, after) = text.split_once("P:musl\n")?;
        value_of_key(after, "V", ':').map(str::to_owned)
    });
    match musl {
        Some(version) => Fact::known(format!("musl {version}"), absolute_name(PACKAGES)),
        None => Fact::unknown("no libc.so.6 in the usual directories and no musl package"),
    }
}

/// `2.36` of `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
fn glibc_banner(bytes: &[u8]) -> Option<String> {
    const WORDS: &[u8] = b" release version ";
    let start = bytes.windows(WORDS.len()).position(|window| window == WORDS)? + WORDS.len();
    let version: String = bytes[start..].iter().take(12).map(|&byte| char::from(byte)).collect();
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    non_empty(version[..end].trim_end_matches('.'))
}

/// The kernel's build configuration and its source; or why it is unknown.
fn kernel_config(root: FileRoot<'_>, release: &Fact<String>) -> Result<(String, String), String> {
    if let Ok(bytes) = root.bytes("proc/config.gz") {
        let unpacked = crate::gzip::unpack(&bytes).map(|text| String::from_utf8_lossy(&text).into_owned());
        return match unpacked {
            Some(text) => Ok((text, "/proc/config.gz".into())),
            None => Err("/proc/config.gz is damaged".into()),
        };
    }
    let Some(release) = release.get() else {
        return Err("there is no /proc/config.gz, and the kernel's release is unknown".into());
    };
    let places = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    for place in &places {
        if let Ok(text) = root.read(place) {
            return Ok((text, absolute_name(place)));
        }
    }
    Err(format!("the kernel's configuration is in neither /proc/config.gz nor /boot/config-{release}"))
}

fn timer_hz(config: &Result<(String, String), String>) -> Fact<u32> {
    match config {
        Err(reason) => Fact::unknown(reason.as_str()),
        Ok((text, source)) => match value_of_key(text, "CONFIG_HZ", '=').and_then(|value| value.parse().ok()) {
            Some(hertz) => Fact::known(hertz, format!("CONFIG_HZ in {source}")),
            None => Fact::unknown(format!("{source} states no CONFIG_HZ")),
        },
    }
}

fn preemption(root: FileRoot<'_>, config: &Result<(String, String), String>) -> Fact<String> {
    const SWITCH: &str = "/sys/kernel/debug/sched/preempt";
    if let Some(mode) = root.text(SWITCH).and_then(|text| parenthesised(&text)) {
        return Fact::known(format!("dynamic ({mode})"), SWITCH);
    }
    let version = match root.read(VERSION_FILE) {
        Ok(version) => version,
        Err(reason) => return Fact::unknown(reason),
    };
    let has = |word: &str| version.split_ascii_whitespace().any(|one| one == word);
    if has("PREEMPT_RT") {
        return Fact::known("full, real-time".into(), VERSION_FILE);
    }
    if has("PREEMPT_DYNAMIC") {
        return dynamic_preemption(&root.text(COMMAND_LINE_FILE).unwrap_or_default(), config);
    }
    if has("PREEMPT") {
        return Fact::known("full".into(), VERSION_FILE);
    }
    match config {
        Err(_) => Fact::known("none or voluntary".into(), VERSION_FILE),
        Ok((text, source)) => match built_preemption(text) {
            Some(mode) => Fact::known(mode.into(), source.as_str()),
            None => Fact::known("none or voluntary".into(), VERSION_FILE),
        },
    }
}

/// The mode of a kernel with dynamic preemption: from the boot line, else its build default.
fn dynamic_preemption(command_line: &str, config: &Result<(String, String), String>) -> Fact<String> {
    if let Some(mode) = boot_option(command_line, "preempt") {
        return Fact::known(format!("dynamic ({mode})"), COMMAND_LINE_FILE);
    }
    match config.as_ref().ok().and_then(|(text, source)| Some((built_preemption(text)?, source))) {
        Some((mode, source)) => Fact::known(format!("dynamic ({mode})"), format!("{VERSION_FILE}, {source}")),
        None => Fact::known("dynamic (mode not known: debugfs is for root)".into(), VERSION_FILE),
    }
}

fn built_preemption(config: &str) -> Option<&'static str> {
    let modes = [
        ("CONFIG_PREEMPT_NONE", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
        ("CONFIG_PREEMPT_LAZY", "lazy"),
        ("CONFIG_PREEMPT", "full"),
    ];
    modes.into_iter().find(|(key, _)| value_of_key(config, key, '=') == Some("y")).map(|(_, mode)| mode)
}

/// `full` of `none voluntary (full)`
fn parenthesised(text: &str) -> Option<String> {
    let (_, after) = text.split_once('(')?;
    non_empty(after.split_once(')')?.0)
}

fn scheduler(root: FileRoot<'_>, release: &Fact<String>) -> Fact<String> {
    if root.text("/sys/kernel/sched_ext/state").as_deref() == Some("enabled") {
        let name = root.text("/sys/kernel/sched_ext/root/ops").unwrap_or_else(|| "unnamed".into());
        return Fact::known(format!("sched_ext ({name})"), "/sys/kernel/sched_ext");
    }
    let Some(text) = release.get() else { return Fact::unknown(release.source_or_reason()) };
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().flatten(), numbers.next().flatten());
    match version {
        // EEVDF replaced the pick of CFS in 6.6 (commit 147f3efaa241), CFS the O(1) scheduler in 2.6.23.
        (Some(major), Some(minor)) if (major, minor) >= (6, 6) => Fact::known("EEVDF".into(), "kernel release"),
        (Some(major), Some(_)) if major >= 3 => Fact::known("CFS".into(), "kernel release"),
        _ => Fact::unknown(format!("the scheduler cannot be told from release {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_banner_is_found() {
        let bytes = b"\0GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\nCopyright";
        assert_eq!(glibc_banner(bytes).as_deref(), Some("2.36"));
        assert_eq!(glibc_banner(b"nothing"), None);
        assert_eq!(glibc_banner(b" release version "), None);
    }

    #[test]
    fn preemption_is_read_from_configuration() {
        let config = |text: &str| Ok((text.to_owned(), "/proc/config.gz".to_owned()));
        let lazy = config("CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_NONE=y\nCONFIG_PREEMPT_DYNAMIC=y\nCONFIG_HZ=250");
        assert_eq!(dynamic_preemption("quiet", &lazy).get().map(String::as_str), Some("dynamic (none)"));
        assert_eq!(dynamic_preemption("preempt=full", &lazy).get().map(String::as_str), Some("dynamic (full)"));
        assert_eq!(timer_hz(&lazy).get(), Some(&250));
        assert_eq!(timer_hz(&Err("because".into())).source_or_reason(), "because");
    }
}
