//! One side of `ab`: the setup of its rounds, and the settings of the system under which they are made.

use std::time::Duration;

use kelvin_file::cgroup::{Cgroup, Controller};
use kelvin_file::temporary_files::ScratchDirectory;
use kelvin_harness::Setup;

use crate::cli::{Setting, SettingKind};
use crate::cli_error::{CliError, Context};
use crate::placement::{check_realtime, placement_on};
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
    pub flag: &'static str,
    /// The setup of its rounds.
    pub setup: Setup,
    /// Its settings.
    pub settings: Vec<Setting>,
    /// What was made for it, removed when dropped.
    groups: Vec<Cgroup>,
    scratch: Option<ScratchDirectory>,
}

impl Arm {
    /// A side of the rounds of a plan.
    ///
    /// # Errors
    /// A setting that cannot be made here.
    pub fn new(flag: &'static str, settings: &[Setting], plan: &RunPlan) -> Result<Self, CliError> {
        let mut setting_names: Vec<String> = settings.iter().take(MAX_NAMED_SETTINGS).map(setting_text).collect();
        match settings.len().checked_sub(MAX_NAMED_SETTINGS) {
            None if setting_names.is_empty() => setting_names.push("as found".to_owned()),
            Some(omitted @ 1..) => setting_names.push(format!("and {omitted} more")),
            _ => {}
        }
        let mut arm = Self {
            name: format!("{}: {}", flag.trim_start_matches('-').to_uppercase(), setting_names.join(", ")),
            flag,
            setup: plan.setup.clone(),
            settings: settings.to_vec(),
            groups: Vec::new(),
            scratch: None,
        };
        for (index, setting) in settings.iter().enumerate() {
            if settings[..index].iter().any(|previous| previous.name == setting.name) {
                bail!("{flag} {}: it is given twice", setting.name);
            }
            arm.apply(setting, plan).context(format_args!("{flag} {}", setting_text(setting)))?;
        }
        Ok(arm)
    }

    /// Puts a setting into the setup.
    fn apply(&mut self, setting: &Setting, plan: &RunPlan) -> Result<(), CliError> {
        let setup = &mut self.setup;
        match &setting.kind {
            SettingKind::AsFound | SettingKind::System(_) => {}
            SettingKind::Cpu(cpu) => {
                let allowed = &plan.setup.placement.allowed;
                if !allowed.contains(cpu) {
                    bail!("this process may use CPUs {}", kelvin_core::cpu_ranges(allowed));
                }
                setup.placement = placement_on(&plan.machine, allowed, *cpu);
            }
            SettingKind::Directory(directory) => {
                let scratch = create_scratch_in(directory, "dir")?;
                setup.scratch = scratch.path().into();
                self.scratch = Some(scratch);
            }
            SettingKind::CongestionControl(name) => {
                socket_options::check_congestion_control(name)?;
                setup.sockets.congestion_control = Some(name.clone());
            }
            SettingKind::SocketBuffers(bytes) => setup.sockets.buffers = Some(*bytes),
            SettingKind::Realtime(is_realtime) => {
                if *is_realtime {
                    check_realtime()?;
                }
                setup.realtime = *is_realtime;
            }
            SettingKind::Quota(share) => {
                let group = Cgroup::create(Controller::Cpu)?;
                group.limit_cpu((share * CPU_QUOTA_PERIOD.as_micros() as f64) as u64, CPU_QUOTA_PERIOD)?;
                setup.cgroups.push(group.path().into());
                self.groups.push(group);
            }
            SettingKind::Memory(bytes) => {
                let group = Cgroup::create(Controller::Memory)?;
                group.limit_memory(*bytes)?;
                setup.cgroups.push(group.path().into());
                self.groups.push(group);
            }
            SettingKind::Group(directory) => {
                if !directory.join("cgroup.procs").is_file() {
                    bail!("it is not a control group: it has no file cgroup.procs");
                }
                setup.cgroups.push(directory.into());
            }
            SettingKind::Environment(name) => setup.environment.push((name.clone(), setting.value.clone())),
        }
        Ok(())
    }

    /// Settings of the system: files and values.
    pub fn system_settings(&self) -> Vec<(&str, &str)> {
        let files = self.settings.iter().filter_map(|setting| match &setting.kind {
            SettingKind::System(file) => Some((file.as_str(), setting.value.as_str())),
            _ => None,
        });
        files.collect()
    }
}

/// A setting as it was written.
fn setting_text(setting: &Setting) -> String {
    match setting.kind {
        SettingKind::AsFound => "as found".to_owned(),
        _ => format!("{}={}", setting.name, setting.value),
    }
}
