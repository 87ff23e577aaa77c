//! One side of `ab`: the setup of its rounds, and the settings of the system under which they are made.

use std::path::Path;
use std::time::Duration;

use kelvin_core::FactDifference;
use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_file::temporary_files::ScratchDirectory;
use kelvin_harness::Setup;
use kelvin_machine::tune::SettingSwitch;

use crate::cli::{Setting, SettingKind};
use crate::cli_error::{CliError, Context};
use crate::commands::tune::JOURNAL_PATH;
use crate::run_plan::{RunPlan, create_scratch_in};
use crate::socket_options;

/// Period of a CPU quota, as the kernel's own.
const CPU_QUOTA_PERIOD: Duration = Duration::from_millis(100);

/// Settings in the name of a side: one may have a file for each CPU.
const MAX_NAMED_SETTINGS: usize = 4;

/// One side.
pub struct Arm {
    /// Its name in tables: its settings.
    pub name: String,
    /// The flag that its settings came from.
    flag: &'static str,
    /// The setup of its rounds.
    pub setup: Setup,
    settings: Vec<Setting>,
    /// What was made for it, removed when dropped.
    _made: ArmResources,
}

impl Arm {
    /// Both sides.
    ///
    /// # Errors
    /// A setting that cannot be made here.
    pub fn both(settings: [&[Setting]; 2], plan: &RunPlan, allowed: &[u32]) -> Result<[Self; 2], CliError> {
        let [a, b] = settings;
        Ok([Self::new("--a", a, plan, allowed)?, Self::new("--b", b, plan, allowed)?])
    }

    fn new(flag: &'static str, settings: &[Setting], plan: &RunPlan, allowed: &[u32]) -> Result<Self, CliError> {
        let mut made = (Vec::new(), None);
        let mut setup = plan.setup.clone();
        for (at, setting) in settings.iter().enumerate() {
            if settings[..at].iter().any(|earlier| earlier.name == setting.name) {
                return Err(CliError::msg(format!("{flag} {}: it is given twice", setting.name)));
            }
            apply_setting(setting, &mut setup, &mut made, (plan, allowed))
                .context(format_args!("{flag} {}", setting_text(setting)))?;
        }
        let mut asked: Vec<String> = settings.iter().take(MAX_NAMED_SETTINGS).map(setting_text).collect();
        match settings.len().checked_sub(MAX_NAMED_SETTINGS) {
            None if asked.is_empty() => asked.push("as found".to_owned()),
            Some(more) if more > 0 => asked.push(format!("and {more} more")),
            _ => {}
        }
        let asked = asked.join(", ");
        let name = format!("{}: {asked}", flag.trim_start_matches('-').to_uppercase());
        Ok(Self { name, flag, setup, settings: settings.to_vec(), _made: made })
    }

    /// Settings of the system: files and values.
    fn system_settings(&self) -> Vec<(&str, &str)> {
        let files = self.settings.iter().filter_map(|setting| match &setting.kind {
            SettingKind::System(file) => Some((file.as_str(), setting.value.as_str())),
            _ => None,
        });
        files.collect()
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
    }
}

/// A setting as it was written.
fn setting_text(setting: &Setting) -> String {
    match setting.kind {
        SettingKind::AsFound => "as found".to_owned(),
        _ => format!("{}={}", setting.name, setting.value),
    }
}

/// What is made for a side.
type ArmResources = (Vec<Cgroup>, Option<ScratchDirectory>);

/// Puts a setting into the setup of a side.
fn apply_setting(
    setting: &Setting,
    setup: &mut Setup,
    (groups, scratch): &mut ArmResources,
    (plan, allowed): (&RunPlan, &[u32]),
) -> Result<(), String> {
    match &setting.kind {
        SettingKind::AsFound | SettingKind::System(_) => {}
        SettingKind::Cpu(cpu) => {
            if !allowed.contains(cpu) {
                let list = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                return Err(format!("this process may use CPUs {list}"));
            }
            setup.placement = plan.placement_on(*cpu);
        }
        SettingKind::Directory(directory) => {
            let made = create_scratch_in(directory, "dir").map_err(|fault| fault.to_string())?;
            setup.scratch = made.path().into();
            *scratch = Some(made);
        }
        SettingKind::CongestionControl(name) => {
            socket_options::check_congestion_control(name).map_err(|fault| fault.to_string())?;
            setup.sockets.congestion_control = Some(name.clone());
        }
        SettingKind::SocketBuffers(bytes) => setup.sockets.buffers = Some(*bytes),
        SettingKind::Realtime(wanted) => setup.realtime = *wanted,
        SettingKind::Quota(share) => {
            let group = Cgroup::create(Controller::Cpu).map_err(|error| error.to_string())?;
            let microseconds = (share * CPU_QUOTA_PERIOD.as_micros() as f64) as u64;
            group.limit_cpu(microseconds, CPU_QUOTA_PERIOD).map_err(|error| error.to_string())?;
            setup.groups.push(group.path().into());
            groups.push(group);
        }
        SettingKind::Memory(bytes) => {
            let group = Cgroup::create(Controller::Memory).map_err(|error| error.to_string())?;
            group.limit_memory(*bytes).map_err(|error| error.to_string())?;
            setup.groups.push(group.path().into());
            groups.push(group);
        }
        SettingKind::Group(directory) => {
            if !directory.join("cgroup.procs").is_file() {
                return Err("it is not a control group: it has no file cgroup.procs".into());
            }
            setup.groups.push(directory.into());
        }
        SettingKind::Environment(name) => setup.environment.push((name.clone(), setting.value.clone())),
    }
    Ok(())
}

/// The settings of the system of both sides.
pub struct SystemSettings {
    /// Their switches, where there are any.
    switches: Option<SettingSwitch>,
}

impl SystemSettings {
    /// Notes them for putting back, and tries both sides.
    ///
    /// # Errors
    /// A setting that the kernel does not take.
    pub fn new(arms: &[Arm; 2]) -> Result<Self, CliError> {
        let wanted: Vec<(&str, &str)> = arms.iter().flat_map(Arm::system_settings).collect();
        if wanted.is_empty() {
            return Ok(Self { switches: None });
        }
        let switches = SettingSwitch::record(Path::new("/"), Path::new(JOURNAL_PATH), &wanted)?;
        let machine = Self { switches: Some(switches) };
        arms.iter().try_for_each(|arm| machine.switch(arm))?;
        Ok(machine)
    }

    /// Switches to a side.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn switch(&self, arm: &Arm) -> Result<(), CliError> {
        let Some(switches) = &self.switches else { return Ok(()) };
        switches.apply(&arm.system_settings()).context(arm.flag)
    }

    /// What differs between the sides.
    pub fn differences(&self, arms: &[Arm; 2]) -> Vec<FactDifference> {
        let mut names: Vec<&Setting> = Vec::new();
        for setting in arms.iter().flat_map(|arm| &arm.settings).filter(|one| one.kind != SettingKind::AsFound) {
            if !names.iter().any(|known| known.name == setting.name) {
                names.push(setting);
            }
        }
        let value = |arm: &Arm, setting: &Setting| {
            arm.value(&setting.name).map_or_else(|| self.original_value(setting), str::to_owned)
        };
        let of = |setting: &&Setting| FactDifference {
            group: "Setting".into(),
            label: setting.name.clone(),
            base: Some(value(&arms[0], setting)),
            other: Some(value(&arms[1], setting)),
        };
        names.iter().map(of).filter(|fact| fact.base != fact.other).collect()
    }

    /// The value of a setting that one side leaves as it was found.
    fn original_value(&self, setting: &Setting) -> String {
        let found = match &setting.kind {
            SettingKind::System(file) => {
                self.switches.iter().flat_map(SettingSwitch::original_values).find(|(known, _)| known == file)
            }
            _ => None,
        };
        found.map_or_else(|| "as found".to_owned(), |(_, value)| format!("as found: {value}"))
    }
}
