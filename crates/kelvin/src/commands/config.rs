//! `kelvin config`: the settings in force, and where each comes from.

use std::io::{self, Write};

use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::{ConfigArgs, SETTINGS, SettingSource, Settings, SettingsFile};
use crate::cli_error::CliError;
use crate::output::{width, write_hanging, write_wrapped};
use crate::stores::default_store_path;

/// What is in force.
#[derive(Serialize)]
struct ConfigReport {
    /// The file of settings; none where there is no home to look in.
    file: Option<ConfigFile>,
    settings: Vec<ConfigLine>,
}

#[derive(Serialize)]
struct ConfigFile {
    path: String,
    is_read: bool,
}

#[derive(Serialize)]
struct ConfigLine {
    name: &'static str,
    variable: &'static str,
    value: String,
    /// None if it is built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SettingSource>,
}

/// `kelvin config`.
pub fn config(args: &ConfigArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let settings = Settings::read(|name| std::env::var_os(name))?;
    let report = ConfigReport {
        settings: SETTINGS.iter().map(|setting| config_line(setting.name, &settings)).collect(),
        file: settings
            .file
            .map(|SettingsFile { path, is_read }| ConfigFile { path: path.display().to_string(), is_read }),
    };
    outlet.write(&report, |out| write_report(out, &report))
}

fn config_line(name: &'static str, settings: &Settings) -> ConfigLine {
    let setting = SETTINGS.iter().find(|setting| setting.name == name).expect("a setting");
    let (value, source) = match settings.value(name) {
        Some((value, source)) => {
            // A store may be a URL.
            (kelvin_store::without_password(&value.to_string_lossy()), Some(source.clone()))
        }
        None if name == "store" => {
            (default_store_path().map_or_else(|error| error.to_string(), |path| path.display().to_string()), None)
        }
        None => (setting.built_in.to_owned(), None),
    };
    ConfigLine { name, variable: setting.variable, value, source }
}

fn write_report(out: &mut dyn Write, report: &ConfigReport) -> io::Result<()> {
    for line in &report.settings {
        let source = line.source.as_ref().map_or("built in".to_owned(), ToString::to_string);
        write_hanging(out, &format!("{:12} ", line.name), &format!("{}  [{source}]", line.value))?;
    }
    let file_text = match &report.file {
        Some(ConfigFile { path, is_read: true }) => format!("The file is {path}."),
        Some(ConfigFile { path, is_read: false }) => format!("The file {path} is not there, or cannot be read."),
        None => "There is no file: neither XDG_CONFIG_HOME nor HOME is set.".to_owned(),
    };
    writeln!(out)?;
    write_wrapped(out, width(), "", &format!("{file_text} `kelvin help environment` has the variables."))
}
