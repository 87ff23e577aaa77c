//! One side of `ab`: the setup of its rounds, and the settings of the system under which they are made.

use std::path::Path;
use std::time::Duration;

use kelvin_file::group::{Controller, Group};
use kelvin_file::temporary::Scratch;
use kelvin_harness::Setup;
use kelvin_machine::tune::Switches;
use kelvin_model::FactDiffers;

use crate::cli::{Means, Setting};
use crate::commands::tune::JOURNAL;
use crate::fault::Fault;
use crate::prepare::{Prepared, scratch_in};
use crate::sockets;

/// Period of a CPU quota, as the kernel's own.
const PERIOD: Duration = Duration::from_millis(100);

/// Settings in the name of a side: one may have a file for each CPU.
const NAMED: usize = 4;

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
    _made: Made,
}

impl Arm {
    /// Both sides.
    ///
    /// # Errors
    /// A setting that cannot be made here.
    pub fn both(settings: [&[Setting]; 2], prepared: &Prepared, allowed: &[u32]) -> Result<[Self; 2], Fault> {
        let [a, b] = settings;
        Ok([Self::new("--a", a, prepared, allowed)?, Self::new("--b", b, prepared, allowed)?])
    }

    fn new(flag: &'static str, settings: &[Setting], prepared: &Prepared, allowed: &[u32]) -> Result<Self, Fault> {
        let mut made = (Vec::new(), None);
        let mut setup = prepared.setup.clone();
        for (at, setting) in settings.iter().enumerate() {
            if settings[..at].iter().any(|earlier| earlier.name == setting.name) {
                return Err(Fault::because(format!("{flag} {}: it is given twice", setting.name)));
            }
            prepare(setting, &mut setup, &mut made, (prepared, allowed))
                .map_err(|why| Fault::new(format!("{flag} {}", text(setting)), why))?;
        }
        let mut asked: Vec<String> = settings.iter().take(NAMED).map(text).collect();
        match settings.len().checked_sub(NAMED) {
            None if asked.is_empty() => asked.push("as found".to_owned()),
            Some(more) if more > 0 => asked.push(format!("and {more} more")),
            _ => {}
        }
        let asked = asked.join(", ");
        let name = format!("{}: {asked}", flag.trim_start_matches('-').to_uppercase());
        Ok(Self { name, flag, setup, settings: settings.to_vec(), _made: made })
    }

    /// Settings of the system: files and values.
    fn of_system(&self) -> Vec<(&str, &str)> {
        let files = self.settings.iter().filter_map(|setting| match &setting.means {
            Means::System(file) => Some((file.as_str(), setting.value.as_str())),
            _ => None,
        });
        files.collect()
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
    }
}

/// A setting as it was written.
fn text(setting: &Setting) -> String {
    match setting.means {
        Means::AsFound => "as found".to_owned(),
        _ => format!("{}={}", setting.name, setting.value),
    }
}

/// What is made for a side.
type Made = (Vec<Group>, Option<Scratch>);

/// Puts a setting into the setup of a side.
fn prepare(
    setting: &Setting,
    setup: &mut Setup,
    (groups, scratch): &mut Made,
    (prepared, allowed): (&Prepared, &[u32]),
) -> Result<(), String> {
    match &setting.means {
        Means::AsFound | Means::System(_) => {}
        Means::Cpu(cpu) => {
            if !allowed.contains(cpu) {
                let list = allowed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                return Err(format!("this process may use CPUs {list}"));
            }
            setup.placement = prepared.placement_at(*cpu);
        }
        Means::Directory(directory) => {
            let made = scratch_in(directory, "dir").map_err(|fault| fault.to_string())?;
            setup.scratch = made.path().into();
            *scratch = Some(made);
        }
        Means::CongestionControl(name) => {
            sockets::find_congestion_control(name).map_err(|fault| fault.to_string())?;
            setup.sockets.congestion_control = Some(name.clone());
        }
        Means::SocketBuffers(bytes) => setup.sockets.buffers = Some(*bytes),
        Means::Realtime(wanted) => setup.realtime = *wanted,
        Means::Quota(share) => {
            let group = Group::make(Controller::Cpu).map_err(|error| error.to_string())?;
            let microseconds = (share * PERIOD.as_micros() as f64) as u64;
            group.limit_cpu(microseconds, PERIOD).map_err(|error| error.to_string())?;
            setup.groups.push(group.path().into());
            groups.push(group);
        }
        Means::Memory(bytes) => {
            let group = Group::make(Controller::Memory).map_err(|error| error.to_string())?;
            group.limit_memory(*bytes).map_err(|error| error.to_string())?;
            setup.groups.push(group.path().into());
            groups.push(group);
        }
        Means::Group(directory) => {
            if !directory.join("cgroup.procs").is_file() {
                return Err("it is not a control group: it has no file cgroup.procs".into());
            }
            setup.groups.push(directory.into());
        }
        Means::Environment(name) => setup.environment.push((name.clone(), setting.value.clone())),
    }
    Ok(())
}

/// The settings of the system of both sides.
pub struct Machine {
    /// Their switches, where there are any.
    switches: Option<Switches>,
}

impl Machine {
    /// Notes them for putting back, and tries both sides.
    ///
    /// # Errors
    /// A setting that the kernel does not take.
    pub fn of(arms: &[Arm; 2]) -> Result<Self, Fault> {
        let wanted: Vec<(&str, &str)> = arms.iter().flat_map(Arm::of_system).collect();
        if wanted.is_empty() {
            return Ok(Self { switches: None });
        }
        let switches = Switches::begin(Path::new("/"), Path::new(JOURNAL), &wanted).map_err(Fault::because)?;
        let machine = Self { switches: Some(switches) };
        arms.iter().try_for_each(|arm| machine.switch(arm))?;
        Ok(machine)
    }

    /// Switches to a side.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn switch(&self, arm: &Arm) -> Result<(), Fault> {
        let Some(switches) = &self.switches else { return Ok(()) };
        switches.switch(&arm.of_system()).map_err(|error| Fault::new(arm.flag, error))
    }

    /// What differs between the sides.
    pub fn differences(&self, arms: &[Arm; 2]) -> Vec<FactDiffers> {
        let mut names: Vec<&Setting> = Vec::new();
        for setting in arms.iter().flat_map(|arm| &arm.settings).filter(|one| one.means != Means::AsFound) {
            if !names.iter().any(|known| known.name == setting.name) {
                names.push(setting);
            }
        }
        let value = |arm: &Arm, setting: &Setting| {
            arm.value(&setting.name).map_or_else(|| self.as_found(setting), str::to_owned)
        };
        let of = |setting: &&Setting| FactDiffers {
            group: "Setting".into(),
            label: setting.name.clone(),
            base: Some(value(&arms[0], setting)),
            other: Some(value(&arms[1], setting)),
        };
        names.iter().map(of).filter(|fact| fact.base != fact.other).collect()
    }

    /// The value of a setting that one side leaves as it was found.
    fn as_found(&self, setting: &Setting) -> String {
        let found = match &setting.means {
            Means::System(file) => self.switches.iter().flat_map(Switches::found).find(|(known, _)| known == file),
            _ => None,
        };
        found.map_or_else(|| "as found".to_owned(), |(_, value)| format!("as found: {value}"))
    }
}
