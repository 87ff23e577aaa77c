//! Defaults of flags that a user sets: flags win over variables, variables over the file, the file over what is built in.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::PathBuf;

use clap::{Arg, Command as Flags};
use serde::Serialize;
use toml::{Table, Value};

use super::spelling::similar_word;
use super::usage_error::message;
use crate::cli_error::CliError;

/// A default that can be set.
#[derive(Debug)]
pub struct Setting {
    /// Its name in the file, and that of the flag.
    pub name: &'static str,
    /// The variable.
    pub variable: &'static str,
    /// The commands whose flag it is for; all that have the flag if there is none.
    commands: &'static [&'static str],
    /// What is in force where it is not set.
    pub built_in: &'static str,
}

/// The commands of `token-file`: elsewhere a file of that name is for something else.
const PEER_COMMANDS: &[&str] = &["run", "study", "net", "agent", "send", "receive"];
/// The commands that measure, of those with these flags.
const MEASURING_COMMANDS: &[&str] = &["run", "study", "ab", "why", "watch", "selfcheck", "file"];

/// All of them.
pub const SETTINGS: [Setting; 8] = [
    Setting { name: "store", variable: "KELVIN_STORE", commands: &[], built_in: "kelvin/runs.sqlite" },
    Setting { name: "token-file", variable: "KELVIN_TOKEN_FILE", commands: PEER_COMMANDS, built_in: "none" },
    Setting { name: "dir", variable: "KELVIN_DIR", commands: MEASURING_COMMANDS, built_in: "." },
    Setting { name: "cpu", variable: "KELVIN_CPU", commands: MEASURING_COMMANDS, built_in: "the last" },
    Setting { name: "target", variable: "KELVIN_TARGET", commands: MEASURING_COMMANDS, built_in: "2" },
    Setting { name: "write-limit", variable: "KELVIN_WRITE_LIMIT", commands: MEASURING_COMMANDS, built_in: "4G" },
    Setting { name: "budget", variable: "KELVIN_BUDGET", commands: &["run"], built_in: "of the command" },
    Setting { name: "rounds", variable: "KELVIN_ROUNDS", commands: &["run"], built_in: "of the command" },
];

/// The variable that names the file.
pub const FILE_VARIABLE: &str = "KELVIN_CONFIG";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// A variable of the environment.
    Variable(&'static str),
    /// The file, by its path.
    File(PathBuf),
}

/// The file of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is there and can be read.
    pub is_read: bool,
}

/// The settings of a user.
#[derive(Debug, Default)]
pub struct Settings {
    /// The file, unless there is no home to look in.
    pub file: Option<SettingsFile>,
    values: Vec<(&'static Setting, OsString, SettingSource)>,
}

impl Settings {
    /// Reads variables and the file.
    ///
    /// # Errors
    /// A file that is named and cannot be read, one that is not TOML, and a key that is none.
    pub fn read(environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, CliError> {
        let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
        let named_file = environment(FILE_VARIABLE).map(PathBuf::from);
        let default_file = || {
            let directory = |name: &str| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
            let home = || directory("HOME").map(|home| home.join(".config"));
            directory("XDG_CONFIG_HOME").or_else(home).map(|config| config.join("kelvin/config.toml"))
        };
        let mut settings = Self::default();
        if let Some(path) = named_file.clone().or_else(default_file) {
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => Some(text),
                Err(error) if named_file.is_none() && is_absence(error.kind()) => None,
                Err(error) => return Err(CliError::new(path.display(), error)),
            };
            settings.file = Some(SettingsFile { path: path.clone(), is_read: text.is_some() });
            settings.add_file(&path, text.as_deref().unwrap_or_default())?;
        }
        for setting in &SETTINGS {
            if let Some(value) = environment(setting.variable) {
                settings.set(setting, value, SettingSource::Variable(setting.variable));
            }
        }
        Ok(settings)
    }

    fn add_file(&mut self, path: &std::path::Path, text: &str) -> Result<(), CliError> {
        let table: Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| format!(", line {}", 1 + text[..span.start].matches('\n').count()));
            CliError::new(format!("{}{}", path.display(), line.unwrap_or_default()), error.message())
        })?;
        for (key, value) in table {
            let Some(setting) = SETTINGS.iter().find(|setting| setting.name == key) else {
                let names = SETTINGS.iter().map(|setting| setting.name);
                let next_step = match similar_word(&key, names.clone()) {
                    Some(similar) => format!("did you mean {similar}?"),
                    None => format!("it may be {}", names.collect::<Vec<_>>().join(", ")),
                };
                return Err(CliError::new(path.display(), format!("there is no setting '{key}': {next_step}")));
            };
            let value = match value {
                Value::String(text) => text,
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                _ => return Err(CliError::new(path.display(), format!("{key}: it must be a text or a number"))),
            };
            self.set(setting, value.into(), SettingSource::File(path.to_owned()));
        }
        Ok(())
    }

    fn set(&mut self, setting: &'static Setting, value: OsString, source: SettingSource) {
        self.values.retain(|(other, ..)| other.name != setting.name);
        self.values.push((setting, value, source));
    }

    /// The value of a setting, and where it comes from.
    pub fn value(&self, name: &str) -> Option<(&OsStr, &SettingSource)> {
        self.values.iter().find(|(setting, ..)| setting.name == name).map(|(_, value, source)| (&**value, source))
    }

    /// A command line with these as the defaults of its flags.
    ///
    /// # Errors
    /// A value that the flag does not allow.
    pub fn apply(&self, mut command: Flags) -> Result<Flags, CliError> {
        for (setting, value, source) in &self.values {
            let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
            for name in names.iter().filter(|name| setting.is_for(name)) {
                let mut result = Ok(());
                command = command.mut_subcommand(name, |sub| set_default(sub, setting.name, value, &mut result));
                result.map_err(|reason| CliError::new(source, reason))?;
            }
        }
        Ok(command)
    }
}

/// By what an option has this value, as errors name it: the variable or the file of a user's settings, or the option itself. What a
/// variable says should not be sought on the command line.
pub fn option_or_setting(name: &str, value: &OsStr) -> String {
    named_by(name, value, |variable| std::env::var_os(variable))
}

fn named_by(name: &str, value: &OsStr, environment: impl Fn(&str) -> Option<OsString>) -> String {
    let settings = Settings::read(environment).unwrap_or_default();
    match settings.value(name).filter(|(set_value, _)| *set_value == value) {
        Some((_, SettingSource::Variable(variable))) => (*variable).to_owned(),
        Some((_, SettingSource::File(path))) => format!("{}: {name}", path.display()),
        None => format!("--{name}"),
    }
}

/// Whether there is no file, or none that this user may look for: of another's home, as under sudo.
fn is_absence(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

impl Setting {
    fn is_for(&self, command: &str) -> bool {
        self.commands.is_empty() || self.commands.contains(&command)
    }
}

impl std::fmt::Display for SettingSource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => out.write_str(name),
            Self::File(path) => write!(out, "{}", path.display()),
        }
    }
}

/// Sets the default of a flag, of a command and those below it.
fn set_default(command: Flags, flag: &str, value: &OsStr, result: &mut Result<(), String>) -> Flags {
    let mut command = command.mut_args(|argument| {
        if argument.get_long() != Some(flag) {
            return argument;
        }
        *result = check_value(&argument, value);
        if result.is_ok() { argument.default_value(value.to_owned()) } else { argument }
    });
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let sub_result = &mut *result;
        command = command.mut_subcommand(name, |sub| set_default(sub, flag, value, sub_result));
    }
    command
}

/// Whether a flag allows a value: by its own words.
fn check_value(argument: &Arg, value: &OsStr) -> Result<(), String> {
    let name = argument.get_long().unwrap_or_default().to_owned();
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    let value_names: Vec<_> = argument.get_value_names().unwrap_or_default().to_vec();
    let flag = Arg::new("value").long(name).value_names(value_names).value_parser(argument.get_value_parser().clone());
    let result = Flags::new("kelvin").arg(flag).try_get_matches_from(["kelvin".into(), word]);
    result.map(drop).map_err(|error| message(&error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// The settings of a file and variables.
    fn settings(text: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = Settings::default();
        settings.add_file(Path::new("/etc/c.toml"), text).map_err(|error| error.to_string())?;
        let environment = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| OsString::from(value))
        };
        let of_variables = Settings::read(environment).map_err(|error| error.to_string())?;
        of_variables.values.into_iter().for_each(|(setting, value, source)| settings.set(setting, value, source));
        Ok(settings)
    }

    #[test]
    fn variable_wins_over_file() {
        let settings = settings("rounds = 9\nbudget = \"1m\"\ntarget = 2.5", &[("KELVIN_ROUNDS", "11")]).unwrap();
        let value = |name| settings.value(name).map(|(value, source)| (value.to_str().unwrap(), source.to_string()));
        assert_eq!(value("rounds"), Some(("11", "KELVIN_ROUNDS".into())));
        assert_eq!(value("budget"), Some(("1m", "/etc/c.toml".into())));
        assert_eq!(value("target"), Some(("2.5", "/etc/c.toml".into())));
        assert_eq!(value("store"), None);
    }

    #[test]
    fn faults_of_file_are_named() {
        for (text, expected) in [
            ("rounds = ", "/etc/c.toml, line 1: "),
            ("\nrouns = 9", "/etc/c.toml: there is no setting 'rouns': did you mean rounds?"),
            ("colour = 1", "there is no setting 'colour': it may be store, token-file, dir, "),
            ("rounds = true", "/etc/c.toml: rounds: it must be a text or a number"),
            ("[run]\nrounds = 9", "there is no setting 'run'"),
        ] {
            let error = settings(text, &[]).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn values_are_checked_like_flags() {
        let error = |text: &str| {
            let applied = settings(text, &[]).unwrap().apply(Cli::command());
            applied.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(error("rounds = 9\ndir = \"/data\"\ncpu = 0\nstore = \"x\""), Ok(()));
        let wrong = error("rounds = 1").unwrap_err();
        assert!(wrong.starts_with("/etc/c.toml: ") && wrong.contains("whole number from 2 to 1000"), "{wrong}");
    }

    #[test]
    fn setting_is_default_of_its_commands_only() {
        let settings = settings("rounds = 9\nstore = \"s\"\ntoken-file = \"t\"", &[]).unwrap();
        let cli = settings.apply(Cli::command()).unwrap();
        let default = |command: &str, flag: &str| {
            let command = cli.find_subcommand(command).unwrap();
            let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag)).unwrap();
            argument.get_default_values().first().map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(default("run", "rounds").as_deref(), Some("9"));
        assert_eq!(default("ab", "rounds"), None);
        assert_eq!(default("history", "store").as_deref(), Some("s"));
        assert_eq!(default("send", "token-file").as_deref(), Some("t"));
        assert_eq!(default("serve", "token-file"), None);
    }

    #[test]
    fn errors_name_the_variable_that_has_the_value() {
        let environment = |name: &str| (name == "KELVIN_STORE").then(|| OsString::from("s"));
        assert_eq!(named_by("store", OsStr::new("s"), environment), "KELVIN_STORE");
        assert_eq!(named_by("store", OsStr::new("other"), environment), "--store");
        assert_eq!(named_by("dir", OsStr::new("s"), environment), "--dir");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("c.toml");
        std::fs::write(&file, "dir = 'd'").unwrap();
        let of_file = |name: &str| (name == FILE_VARIABLE).then(|| file.clone().into_os_string());
        assert_eq!(named_by("dir", OsStr::new("d"), of_file), format!("{}: dir", file.display()));
    }

    #[test]
    fn each_setting_is_in_help_and_of_a_flag() {
        let text = include_str!("help/topics/environment.txt");
        let cli = Cli::command();
        for setting in &SETTINGS {
            assert!(text.contains(setting.variable), "{}", setting.variable);
            let is_of_flag = |command: &Flags| {
                setting.is_for(command.get_name())
                    && command.get_arguments().any(|argument| argument.get_long() == Some(setting.name))
            };
            assert!(cli.get_subcommands().any(is_of_flag), "{}", setting.name);
        }
    }
}
