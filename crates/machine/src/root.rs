//! Reads small files below a root directory, with reasons a user can act on, and parses their common formats.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kelvin_core::Fact;
pub use kelvin_sys::procfs::value_of_key;

/// Maximum file size; files in /proc and /sys are far smaller, and a C library is about 2 MB.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Highest CPU number in a list: the kernel's own bound is 8192 (`CONFIG_NR_CPUS` with MAXSMP).
const MAX_CPU_NUMBER: u32 = 65_535;

/// Tables of the firmware.
const FIRMWARE: &str = "/sys/firmware";
/// Directories of the kernel that a container may leave out or cover by an empty one.
const COVERED_DIRECTORIES: [&str; 3] = ["/proc", "/sys", FIRMWARE];

/// A directory used as `/`: this machine, or a recorded tree.
#[derive(Clone, Copy, Debug)]
pub struct FileRoot<'a> {
    path: &'a Path,
}

impl<'a> FileRoot<'a> {
    /// This directory.
    pub fn new(path: &'a Path) -> Self {
        Self { path }
    }

    /// Whether this is the running machine, whose processor and system calls can be queried too.
    pub fn is_live(self) -> bool {
        self.path == Path::new("/")
    }

    /// The actual path of a file of the machine.
    pub(crate) fn resolve(self, name: &str) -> PathBuf {
        self.path.join(name.trim_start_matches('/'))
    }

    /// The text of a file without surrounding white space and NULs, with which some recorders end it, or why there is none.
    pub(crate) fn read(self, name: &str) -> Result<String, String> {
        let is_padding = |sign: char| sign.is_whitespace() || sign == '\0';
        self.bytes(name).map(|bytes| String::from_utf8_lossy(&bytes).trim_matches(is_padding).to_owned())
    }

    /// The text of a file, if it can be read.
    pub fn text(self, name: &str) -> Option<String> {
        self.read(name).ok()
    }

    /// The bytes of a file, or why there are none.
    pub(crate) fn bytes(self, name: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        // Do not block on a pipe in a recorded tree.
        let result = fs::File::options().read(true).custom_flags(kelvin_sys::fs::O_NONBLOCK).open(self.resolve(name));
        result
            .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes))
            .map_err(|error| self.unreadable_reason(name, &error))?;
        Ok(bytes)
    }

    /// Why a file could not be read, and what to do.
    fn unreadable_reason(self, name: &str, error: &std::io::Error) -> String {
        let name = absolute_name(name);
        match error.kind() {
            ErrorKind::NotFound if name.starts_with("/etc/") || name.starts_with("/usr/") => {
                format!("there is no {name} in this root file system")
            }
            ErrorKind::NotFound => {
                let reason = self.absence_reason(&name, "the kernel or the platform does not provide it");
                format!("there is no {name}: {reason}")
            }
            ErrorKind::PermissionDenied => format!("only root may read {name}: run as root"),
            _ => format!("{name} cannot be read: {error}"),
        }
    }

    /// The reason for which the kernel does not show something, or that nothing at all is where it would be.
    pub(crate) fn absence_reason(self, name: &str, reason: &str) -> String {
        let name = absolute_name(name);
        let shows_nothing = |place: &&&str| match fs::read_dir(self.resolve(place)) {
            Ok(mut entries) => entries.next().is_none(),
            // What has no firmware's tables has no directory of them.
            Err(_) => **place != FIRMWARE,
        };
        let mut places = COVERED_DIRECTORIES.iter().filter(|place| Path::new(&name).starts_with(place));
        match places.find(shows_nothing) {
            Some(place) => format!("nothing is below {place}, as where a container hides it"),
            None => reason.to_owned(),
        }
    }

    /// A fact that one file holds.
    pub(crate) fn fact<T>(self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        fact_of(self.read(name).and_then(|text| value_and_source(name, parse(&text), &text)))
    }

    /// A fact that one line of a file holds, found by its key.
    pub(crate) fn line_fact<T>(self, name: &str, key: &str, parse: impl FnOnce(&str, &str) -> Option<T>) -> Fact<T> {
        fact_of(self.read(name).and_then(|text| {
            // Of a file of many lines the one that is meant is shown.
            let line = text.lines().find(|line| line.trim_start().starts_with(key));
            let line = line.ok_or_else(|| format!("{} has no line '{key}'", absolute_name(name)))?;
            value_and_source(name, parse(&text, key), line)
        }))
    }

    /// The names in a directory in natural order; empty if there is none.
    pub fn names(self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.resolve(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned)).collect();
        names.sort_by_cached_key(|name| natural_key(name));
        names
    }

    /// Whether there is a file or link of this name.
    pub fn exists(self, name: &str) -> bool {
        fs::symlink_metadata(self.resolve(name)).is_ok()
    }

    /// Where a symbolic link points, as it is written.
    pub(crate) fn link(self, name: &str) -> Option<String> {
        fs::read_link(self.resolve(name)).ok()?.to_str().map(str::to_owned)
    }

    /// The last component of a symbolic link's target: the name of a driver.
    pub(crate) fn link_name(self, name: &str) -> Option<String> {
        self.link(name)?.rsplit('/').next().map(str::to_owned)
    }
}

/// The value of a fact, or why it is unknown.
pub(crate) fn required<T>(fact: &Fact<T>) -> Result<&T, String> {
    fact.get().ok_or_else(|| fact.source_or_reason().to_owned())
}

/// A fact from a value and its source, or from the reason for none.
pub(crate) fn fact_of<T, S: Into<String>>(read: Result<(T, S), String>) -> Fact<T> {
    match read {
        Ok((value, source)) => Fact::known(value, source),
        Err(reason) => Fact::unknown(reason),
    }
}

/// A text that is not empty.
pub(crate) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The absolute name of a file, as sources and reasons show it.
pub(crate) fn absolute_name(name: &str) -> String {
    format!("/{}", name.trim_start_matches('/'))
}

/// The value of a file and its name, or why the text has no meaning.
fn value_and_source<T>(name: &str, value: Option<T>, text: &str) -> Result<(T, String), String> {
    let name = absolute_name(name);
    value.ok_or_else(|| format!("{name} says {:?}, which is not meaningful", excerpt(text))).map(|value| (value, name))
}

/// The beginning of a text, for messages.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A sort key under which `cpu10` follows `cpu9`: letters, then the number at the end.
fn natural_key(name: &str) -> (String, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), name[stem.len()..].parse().unwrap_or(0))
}

/// A list such as `0-3,8`: empty text is the empty list, `None` is not a list. The kernel names each CPU once: more than there can be of them
/// is none of its lists.
pub fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > MAX_CPU_NUMBER {
            return None;
        }
        if cpus.len() > MAX_CPU_NUMBER as usize {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// A mask such as `ff` or `00000001,0000000f`: hexadecimal, the highest CPUs first, a comma after each 32 of them; `None` is not a mask.
pub(crate) fn cpu_mask(text: &str) -> Option<Vec<u32>> {
    let words: Vec<&str> = text.trim().split(',').collect();
    let mut cpus = Vec::new();
    for (number, word) in words.iter().rev().enumerate() {
        let is_word = (1..=8).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u32::from_str_radix(word, 16).ok().filter(|_| is_word)?;
        let first = u32::try_from(number).ok()?.checked_mul(u32::BITS).filter(|&first| first <= MAX_CPU_NUMBER)?;
        cpus.extend((0..u32::BITS).filter(|bit| bits & (1 << bit) != 0).map(|bit| first + bit));
    }
    Some(cpus)
}

/// The word in brackets of a line such as `always [madvise] never`.
pub(crate) fn bracketed_word(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    (!word.is_empty()).then_some(word)
}

/// A size such as `48K`, `32768K`, `2M` as in cache directories, in bytes.
pub(crate) fn suffixed_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A value of the boot line: `preempt` of `quiet preempt=full`.
pub(crate) fn boot_option<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// Names by which things are recognised, by kind.
const NAMES: &str = include_str!("../data/names.txt");

/// What the first key of a kind that fits stands for, by `data/names.txt`.
pub(crate) fn known_name(kind: &str, is_match: impl Fn(&str) -> bool) -> Option<&'static str> {
    data_lines(NAMES).find_map(|row| {
        let (key, name) = row.strip_prefix(kind)?.strip_prefix('\t')?.split_once('\t')?;
        is_match(key).then_some(name)
    })
}

/// The lines of a list in `data`, without its comments.
pub(crate) fn data_lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// A finite non-negative number.
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(cpu_list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpu_list("0-3,8\n").map(|cpus| kelvin_core::cpu_ranges(&cpus)).as_deref(), Some("0-3,8"));
        assert_eq!(cpu_list(""), Some(vec![]));
        assert_eq!(cpu_list("3-1"), None);
        assert_eq!(cpu_list("0-4294967295"), None);
        assert_eq!(cpu_list("x"), None);
        assert_eq!(cpu_list("0-65535").map(|cpus| cpus.len()), Some(65_536));
        // It would be 26 GB.
        assert_eq!(cpu_list(&"0-65535,".repeat(100_000)), None);
    }

    #[test]
    fn cpu_masks_are_parsed() {
        assert_eq!(cpu_mask("3"), Some(vec![0, 1]));
        assert_eq!(cpu_mask("00000001,80000000\n"), Some(vec![31, 32]));
        assert_eq!(cpu_mask("0"), Some(vec![]));
        // The kernels of large machines have more than 1024 possible CPUs.
        let wide_mask = format!("80000000,{}00000001", "00000000,".repeat(62));
        assert_eq!(cpu_mask(&wide_mask), Some(vec![0, 2047]));
        for text in ["", "0x3", "123456789", "1,,1", "g", "-1"] {
            assert_eq!(cpu_mask(text), None, "{text:?}");
        }
    }

    #[test]
    fn text_values_are_parsed() {
        assert_eq!(suffixed_size("48K"), Some(49_152));
        assert_eq!(suffixed_size("2M"), Some(2 << 20));
        assert_eq!(suffixed_size("17179869185G"), None);
        assert_eq!(suffixed_size("ü"), None);
        assert_eq!(bracketed_word("none [mq-deadline] kyber"), Some("mq-deadline"));
        assert_eq!(bracketed_word("none"), None);
        assert_eq!(value_of_key("a: 1\nb : 2 x\n", "b", ':'), Some("2 x"));
        assert_eq!(boot_option("quiet preempt=full", "preempt"), Some("full"));
        assert_eq!(boot_option("nopreempt=1", "preempt"), None);
        assert_eq!(parse_number("NaN"), None);
    }

    #[test]
    fn names_are_in_natural_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["cpu10", "cpu9", "cpufreq"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(FileRoot::new(directory.path()).names("/"), ["cpu9", "cpu10", "cpufreq"]);
    }

    #[test]
    fn pipe_reads_as_empty_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap();
        assert!(status.success());
        assert_eq!(FileRoot::new(directory.path()).read("pipe").as_deref(), Ok(""));
    }

    #[test]
    fn unreadable_reason_names_file_and_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let root = FileRoot::new(directory.path());
        assert!(root.read("proc/cpuinfo").unwrap_err().starts_with("there is no /proc/cpuinfo"));
        fs::write(directory.path().join("x"), "odd").unwrap();
        let fact = root.fact("x", |text| text.parse::<u32>().ok());
        assert_eq!(fact.source_or_reason(), "/x says \"odd\", which is not meaningful");
        let parse = |text: &str, key: &str| value_of_key(text, key, ':')?.parse::<u32>().ok();
        fs::write(directory.path().join("y"), "One: 1\nTwo: x\n").unwrap();
        let reason = |key| root.line_fact("y", key, parse).source_or_reason().to_owned();
        assert_eq!(reason("One"), "/y");
        assert_eq!(reason("Three"), "/y has no line 'Three'");
        assert_eq!(reason("Two"), "/y says \"Two: x\", which is not meaningful");
    }

    #[test]
    fn absent_file_has_reason_of_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let root = FileRoot::new(directory.path());
        let reason = |name| root.read(name).unwrap_err();
        assert_eq!(reason("etc/machine-id"), "there is no /etc/machine-id in this root file system");
        let hidden = |place| format!("nothing is below {place}, as where a container hides it");
        assert_eq!(reason("proc/x"), format!("there is no /proc/x: {}", hidden("/proc")));
        assert_eq!(reason("sys/firmware/x"), format!("there is no /sys/firmware/x: {}", hidden("/sys")));
        fs::create_dir_all(directory.path().join("sys")).unwrap();
        assert_eq!(reason("sys/kernel/x"), format!("there is no /sys/kernel/x: {}", hidden("/sys")));
        fs::create_dir_all(directory.path().join("sys/firmware")).unwrap();
        assert_eq!(reason("sys/firmware/x"), format!("there is no /sys/firmware/x: {}", hidden("/sys/firmware")));
        let provided = "the kernel or the platform does not provide it";
        assert_eq!(reason("sys/kernel/x"), format!("there is no /sys/kernel/x: {provided}"));
        fs::write(directory.path().join("sys/firmware/y"), "").unwrap();
        assert_eq!(reason("sys/firmware/x"), format!("there is no /sys/firmware/x: {provided}"));
    }
}
