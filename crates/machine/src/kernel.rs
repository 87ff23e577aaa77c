//! Kernel, distribution and C library.

use std::io::Read;

use flate2::read::GzDecoder;
use kelvin_core::{Fact, Kernel};

use crate::root::{FileRoot, absolute_name, boot_option, fact_of, non_empty, value_of_key};

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
        timer_hz: fact_of(timer_hz(&config)),
        scheduler: scheduler(root, &release),
        congestion_control: root.fact("/proc/sys/net/ipv4/tcp_congestion_control", non_empty),
        clock_source: root.fact(CLOCK_SOURCE_FILE, non_empty),
        release,
    }
}

fn release(root: FileRoot<'_>) -> Fact<String> {
    let os_release = root.fact("/proc/sys/kernel/osrelease", non_empty);
    if os_release.get().is_some() {
        return os_release;
    }
    root.fact(VERSION_FILE, |text| {
        text.strip_prefix("Linux version ")?.split_ascii_whitespace().next().map(str::to_owned)
    })
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

/// Maximum unpacked length; a kernel configuration is about 300 kB.
const MAX_UNPACKED_BYTES: u64 = 8 << 20;

/// The content of a gzip file; `None` if damaged or too long. The checksum is verified.
pub(crate) fn unpack_gzip(file: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let length = GzDecoder::new(file).take(MAX_UNPACKED_BYTES + 1).read_to_end(&mut text).ok()?;
    (length as u64 <= MAX_UNPACKED_BYTES).then_some(text)
}

/// The kernel's build configuration and its source; or why it is unknown.
fn kernel_config(root: FileRoot<'_>, release: &Fact<String>) -> Result<(String, String), String> {
    if let Ok(bytes) = root.bytes("proc/config.gz") {
        let text = unpack_gzip(&bytes).ok_or("/proc/config.gz is damaged")?;
        return Ok((String::from_utf8_lossy(&text).into_owned(), "/proc/config.gz".into()));
    }
    let Some(release) = release.get() else {
        return Err("there is no /proc/config.gz, and the kernel's release is unknown".into());
    };
    let files = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    let config = files.into_iter().find_map(|file| Some((root.text(&file)?, file)));
    config.ok_or_else(|| format!("the kernel's configuration is in neither /proc/config.gz nor /boot/config-{release}"))
}

fn timer_hz(config: &Result<(String, String), String>) -> Result<(u32, String), String> {
    let (text, source) = config.as_ref().map_err(String::clone)?;
    let hertz = value_of_key(text, "CONFIG_HZ", '=').and_then(|value| value.parse().ok());
    Ok((hertz.ok_or_else(|| format!("{source} states no CONFIG_HZ"))?, format!("CONFIG_HZ in {source}")))
}

fn preemption(root: FileRoot<'_>, config: &Result<(String, String), String>) -> Fact<String> {
    const SWITCH: &str = "/sys/kernel/debug/sched/preempt";
    // `full` of `none voluntary (full)`
    let selected_mode = |text: &str| non_empty(text.split_once('(')?.1.split_once(')')?.0);
    if let Some(mode) = root.text(SWITCH).and_then(|text| selected_mode(&text)) {
        return Fact::known(format!("dynamic ({mode})"), SWITCH);
    }
    let version = match root.read(VERSION_FILE) {
        Ok(version) => version,
        Err(reason) => return Fact::unknown(reason),
    };
    let has_word = |word: &str| version.split_ascii_whitespace().any(|version_word| version_word == word);
    if has_word("PREEMPT_DYNAMIC") && !has_word("PREEMPT_RT") {
        return dynamic_preemption(&root.text(COMMAND_LINE_FILE).unwrap_or_default(), config);
    }
    if let Some((_, mode)) =
        [("PREEMPT_RT", "full, real-time"), ("PREEMPT", "full")].into_iter().find(|(word, _)| has_word(word))
    {
        return Fact::known(mode.into(), VERSION_FILE);
    }
    let built = config.as_ref().ok().and_then(|(text, source)| Some((built_preemption(text)?, source.as_str())));
    let (mode, source) = built.unwrap_or(("none or voluntary", VERSION_FILE));
    Fact::known(mode.into(), source)
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
        _ => Fact::unknown(format!("the scheduler cannot be derived from release {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

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
        assert_eq!(timer_hz(&lazy).unwrap().0, 250);
        assert_eq!(timer_hz(&Err("because".into())), Err("because".into()));
    }

    /// `printf 'CONFIG_HZ=250\n' | gzip -n`.
    const PACKED_TEXT: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x73, 0xf6, 0xf7, 0x73, 0xf3, 0x74, 0x8f, 0xf7, 0x88, 0xb2, 0x35, 0x32,
        0x35, 0xe0, 0x02, 0x00, 0xfb, 0x5f, 0x3a, 0x01, 14, 0, 0, 0,
    ];

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_output_is_unpacked() {
        assert_eq!(unpack_gzip(PACKED_TEXT).as_deref(), Some(&b"CONFIG_HZ=250\n"[..]));
    }

    #[test]
    fn damaged_file_is_refused() {
        for length in 0..PACKED_TEXT.len() {
            assert_eq!(unpack_gzip(&PACKED_TEXT[..length]), None, "{length}");
        }
        for index in 10..PACKED_TEXT.len() {
            let mut damaged = PACKED_TEXT.to_vec();
            damaged[index] ^= 1;
            assert_eq!(unpack_gzip(&damaged), None, "{index}");
        }
    }

    #[test]
    fn oversized_unpacked_file_is_refused() {
        assert_eq!(
            unpack_gzip(&gzip(&vec![0; MAX_UNPACKED_BYTES as usize])).map(|text| text.len() as u64),
            Some(MAX_UNPACKED_BYTES)
        );
        assert_eq!(unpack_gzip(&gzip(&vec![0; MAX_UNPACKED_BYTES as usize + 1])), None);
    }
}
