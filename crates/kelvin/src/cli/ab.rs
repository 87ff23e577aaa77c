//! Flags of `kelvin ab`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use kelvin_core::quantity::{parse_bytes, parse_percentage};

use super::time::command;
use super::{CompareOutputArgs, RunOptions, percent_up_to_50, socket_buffers};

/// `kelvin ab`.
#[derive(Debug, Args)]
pub struct AbArgs {
    /// What to measure under both settings: areas, probes, metrics, or any leading part of an id; at the points of a quick run
    pub names: Vec<String>,
    /// A setting of A, as NAME=VALUE; repeatable [default: as-found]
    #[arg(long = "a", value_name = "SETTING", conflicts_with = "a_cmd")]
    pub a: Vec<Setting>,
    /// A setting of B
    #[arg(long = "b", value_name = "SETTING", required_unless_present = "b_cmd")]
    pub b: Vec<Setting>,
    /// Measure this command instead of probes, run by /bin/sh, against that of --b-cmd
    #[arg(long, value_name = "COMMAND", value_parser = command, requires = "b_cmd", conflicts_with_all = ["names", "b"])]
    pub a_cmd: Option<String>,
    /// The command of B
    #[arg(long, value_name = "COMMAND", value_parser = command, requires = "a_cmd", conflicts_with = "b")]
    pub b_cmd: Option<String>,
    /// Continue until every ratio is known to within this percentage, or the budget is spent
    #[arg(long, value_name = "PERCENT", value_parser = percent_up_to_50)]
    pub until: Option<f64>,
    /// Measure all points, not only those of a quick run
    #[arg(long)]
    pub thorough: bool,
    /// How it is judged and shown
    #[command(flatten)]
    pub shown: CompareOutputArgs,
    /// Keep in files what identifies the machine: paths, hosts, addresses
    #[arg(long)]
    pub with_private: bool,
    /// How to measure
    #[command(flatten)]
    pub options: RunOptions,
}

/// A setting of one side, as it was written, and what it means.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name: `cpu`.
    pub name: String,
    /// Its value as text.
    pub value: String,
    /// What it means.
    pub kind: SettingKind,
}

/// What a setting means.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingKind {
    /// Nothing: the machine as it was found.
    AsFound,
    /// The CPU of single-CPU probes.
    Cpu(u32),
    /// The directory of test files.
    Directory(PathBuf),
    /// The congestion control of the streams that --congestion-control is for.
    CongestionControl(String),
    /// Bytes of each socket buffer of these.
    SocketBuffers(u32),
    /// Whether probes run at real-time priority.
    Realtime(bool),
    /// A CPU quota, in CPUs.
    Quota(f64),
    /// A limit of memory, in bytes.
    Memory(u64),
    /// A control group that is there.
    Group(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A setting of the system: its file.
    System(String),
}

/// The names of settings, with an example of each, as a mistake and `--help` list them.
pub const SETTINGS_HELP: &str = "cpu=1, dir=/mnt, congestion-control=bbr, socket-buffers=64k, realtime=yes, quota=50%, memory=512M, \
                            group=/sys/fs/cgroup/mine, env.NAME=VALUE, huge-pages=never, vm.swappiness=10 or any other sysctl, a file \
                            below /proc/sys or /sys=VALUE, and as-found";

/// The file of `huge-pages`.
const HUGE_PAGES_FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "as-found" {
            return Ok(Self { name: text.into(), value: String::new(), kind: SettingKind::AsFound });
        }
        let parts = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let (name, value) = parts.ok_or_else(|| format!("expected NAME=VALUE; known are {SETTINGS_HELP}"))?;
        let kind = parse_kind(name, value)?;
        Ok(Self { name: name.into(), value: value.into(), kind })
    }
}

/// Below it the kernel kills the program before it measures anything.
const MIN_MEMORY: u64 = 16 << 20;

fn parse_kind(name: &str, value: &str) -> Result<SettingKind, String> {
    Ok(match name {
        "cpu" => SettingKind::Cpu(value.parse().map_err(|_| "expected the number of a CPU, such as cpu=1")?),
        "dir" => SettingKind::Directory(value.into()),
        "congestion-control" => SettingKind::CongestionControl(value.into()),
        "socket-buffers" => SettingKind::SocketBuffers(socket_buffers(value)?),
        "realtime" => SettingKind::Realtime(match value {
            "yes" => true,
            "no" => false,
            _ => return Err("expected realtime=yes or realtime=no".into()),
        }),
        "quota" => SettingKind::Quota(cpu_quota(value)?),
        "memory" => match parse_bytes(value)? {
            memory if memory >= MIN_MEMORY => SettingKind::Memory(memory),
            _ => return Err("the program needs at least 16M, such as memory=512M".into()),
        },
        "group" => SettingKind::Group(value.into()),
        "huge-pages" => SettingKind::System(HUGE_PAGES_FILE.into()),
        _ => return parse_system_setting(name),
    })
}

/// An environment variable, or a setting of the system by its file or its sysctl name.
fn parse_system_setting(name: &str) -> Result<SettingKind, String> {
    let file = match name.strip_prefix("env.") {
        Some("") => return Err("expected env.NAME=VALUE".into()),
        Some(variable) => return Ok(SettingKind::Environment(variable.into())),
        None if name.starts_with('/') => name.to_owned(),
        // As sysctl(8): dots separate, unless slashes do.
        None if name.contains('/') => format!("/proc/sys/{name}"),
        None if name.contains('.') => format!("/proc/sys/{}", name.replace('.', "/")),
        None => return Err(format!("{name} is no setting; known are {SETTINGS_HELP}")),
    };
    let is_file = !Path::new(&file).components().any(|part| part.as_os_str() == "..") && Path::new(&file).is_file();
    if is_file { Ok(SettingKind::System(file)) } else { Err(format!("{name}: there is no file {file} here")) }
}

/// A share of one CPU or of several: 50 %, 150 %.
fn cpu_quota(text: &str) -> Result<f64, String> {
    // Without its sign it could be meant in CPUs.
    let share = parse_percentage(text).ok().filter(|share| text.ends_with('%') && (0.01..=1000.0).contains(share));
    share.ok_or_else(|| "expected a percentage of a CPU from 1, such as quota=50%".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_is_name_and_value() {
        let kind_of = |text: &str| text.parse::<Setting>().map(|setting| setting.kind);
        assert_eq!(kind_of("as-found"), Ok(SettingKind::AsFound));
        assert_eq!(kind_of("cpu=1"), Ok(SettingKind::Cpu(1)));
        assert_eq!(kind_of("quota=150%"), Ok(SettingKind::Quota(1.5)));
        assert_eq!(kind_of("memory=512M"), Ok(SettingKind::Memory(512 << 20)));
        assert_eq!(kind_of("env.MALLOC_ARENA_MAX=1"), Ok(SettingKind::Environment("MALLOC_ARENA_MAX".into())));
        assert_eq!(kind_of("vm.swappiness=1"), Ok(SettingKind::System("/proc/sys/vm/swappiness".into())));
        assert_eq!(kind_of("/proc/sys/vm/swappiness=1"), kind_of("vm/swappiness=1"));
        for text in [
            "",
            "cpu",
            "cpu=",
            "=1",
            "cpu=first",
            "speed=1",
            "quota=50",
            "quota=0%",
            "realtime=on",
            "env.=1",
            "vm.nothing=1",
            "memory=much",
            "socket-buffers=1",
            "/etc/../proc/sys/vm/swappiness=1",
        ] {
            assert!(kind_of(text).is_err(), "{text}");
        }
        let setting: Setting = "net.ipv4.tcp_rmem=4096 131072 6291456".parse().unwrap();
        assert_eq!(setting.value, "4096 131072 6291456");
    }
}
