//! The settings that read files fastest, remembered for each file system from one digest to the next.
//!
//! They are kept in `kelvin/digest.json` in `XDG_CACHE_HOME`, else in `HOME/.cache` (XDG Base Directory Specification). A
//! setting holds for one file system on one device, for files from memory or from the device, for one number of CPUs, one
//! kernel and one kelvin. The next search starts from it, and corrects it if it is out of date.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use kelvin_file::fast_digest::{DataSource, ReadMethod, ReadSetting};
use kelvin_file::output_file::OutputFile;
use kelvin_file::{Access, Target};
use kelvin_sys::fs::{file_system_id, kind, major, minor};
use serde::{Deserialize, Serialize};

use crate::cli_error::{CliError, Context};
use crate::version::VERSION;

/// The format of the file; no other is read.
const FORMAT: u32 = 1;
/// The remedy for a file of another format.
const REBUILD_HINT: &str = "--rebuild-cache starts a new one";
/// Newest settings kept: far more than a machine has file systems.
const MAX_SETTINGS: usize = 100;

/// The contents of the file.
#[derive(Debug, Deserialize, Serialize)]
struct CacheFile {
    format: u32,
    settings: Vec<CachedSetting>,
}

/// What a setting holds for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct TuningKey {
    /// Kind and identity of the file system, and the numbers of its device.
    file_system: String,
    /// Where the file was: `memory` or `device`.
    source: String,
    /// CPUs that could be used.
    cpus: u32,
    kernel: String,
    kelvin: String,
}

/// A setting in stable words and numbers: names of methods may change with kelvin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct CachedSetting {
    #[serde(flatten)]
    circumstances: TuningKey,
    engine: String,
    direct: bool,
    block: usize,
    threads: u32,
}

impl TuningKey {
    /// The conditions of a file, or why its file system cannot be identified.
    pub(super) fn of_file(target: &Target, source: DataSource, cpus: u32) -> Result<Self, CliError> {
        let path = target.path();
        let to_error = |error| CliError::new(format!("cannot examine the file system of {}", path.display()), error);
        let device = target.device();
        let (name, identity) = (kind(path).map_err(to_error)?.name(), file_system_id(path).map_err(to_error)?);
        Ok(Self {
            file_system: format!("{name} {identity:016x} on {}:{}", major(device), minor(device)),
            source: source.name().to_owned(),
            cpus,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").map_err(to_error)?.trim().to_owned(),
            kelvin: VERSION.to_owned(),
        })
    }
}

impl CachedSetting {
    fn new(circumstances: TuningKey, ReadSetting { method, threads }: ReadSetting) -> Self {
        let ReadMethod { engine, access, block } = method;
        Self { circumstances, engine: engine.to_string(), direct: access == Access::Direct, block, threads }
    }

    /// The setting, if this kelvin has that method.
    fn setting(&self, source: DataSource) -> Option<ReadSetting> {
        let is_same = |ReadMethod { engine, access, block }: &&ReadMethod| {
            engine.to_string() == self.engine && (*access == Access::Direct) == self.direct && *block == self.block
        };
        Some(ReadSetting { method: *source.methods().iter().find(is_same)?, threads: self.threads })
    }
}

/// Settings found before and now.
#[derive(Debug)]
pub(super) struct TuningCache {
    path: PathBuf,
    settings: Vec<CachedSetting>,
    is_changed: bool,
}

impl TuningCache {
    /// Their path. `environment` looks a variable up.
    pub(super) fn path_from_environment(environment: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, CliError> {
        let directory = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = match (directory("XDG_CACHE_HOME"), directory("HOME")) {
            (Some(cache), _) if !cache.is_absolute() => {
                bail!("XDG_CACHE_HOME is not an absolute path: {}", cache.display());
            }
            (Some(cache), _) => cache,
            (None, Some(home)) => home.join(".cache"),
            (None, None) => bail!("neither XDG_CACHE_HOME nor HOME is set"),
        };
        Ok(cache.join("kelvin/digest.json"))
    }

    /// Reads them; empty if there is no file yet.
    ///
    /// # Errors
    /// A file that cannot be read, or that kelvin did not write.
    pub(super) fn read(path: PathBuf) -> Result<Self, CliError> {
        let settings = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(CliError::new(format!("cannot read {}", path.display()), error)),
            Ok(text) => {
                let name = path.display();
                let content = serde_json::from_slice(&text);
                match content.context(format_args!("{name} was not written by kelvin ({REBUILD_HINT})"))? {
                    CacheFile { format: FORMAT, settings } => settings,
                    CacheFile { format, .. } => {
                        bail!("{name} has format {format}, and this kelvin knows {FORMAT} ({REBUILD_HINT})")
                    }
                }
            }
        };
        Ok(Self { path, settings, is_changed: false })
    }

    /// None yet, to be kept there.
    pub(super) fn empty(path: PathBuf) -> Self {
        Self { path, settings: Vec::new(), is_changed: false }
    }

    /// What was found before.
    pub(super) fn find(&self, key: &TuningKey, source: DataSource) -> Option<ReadSetting> {
        self.settings.iter().find(|cached| cached.circumstances == *key)?.setting(source)
    }

    /// Records what was found now.
    pub(super) fn insert(&mut self, key: TuningKey, setting: ReadSetting) {
        let entry = CachedSetting::new(key, setting);
        if self.settings.contains(&entry) {
            return;
        }
        self.settings.retain(|cached| cached.circumstances != entry.circumstances);
        self.settings.push(entry);
        self.settings.drain(..self.settings.len().saturating_sub(MAX_SETTINGS));
        self.is_changed = true;
    }

    /// Writes them if they changed, replacing the file.
    ///
    /// # Errors
    /// A directory that cannot be made or written.
    pub(super) fn save(&self) -> Result<(), CliError> {
        if !self.is_changed {
            return Ok(());
        }
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        // For its owner only, as the specification asks.
        let result = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        result.context(format_args!("cannot make {}", directory.display()))?;
        let content = CacheFile { format: FORMAT, settings: self.settings.clone() };
        let write = |out: &mut dyn Write| {
            serde_json::to_writer_pretty(&mut *out, &content)?;
            writeln!(out)
        };
        OutputFile::find(&self.path)?.write_unflushed(write).map_err(CliError::msg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning_key(file_system: &str, cpus: u32) -> TuningKey {
        let (kernel, kelvin) = ("6.1.0".into(), "0.1.0".into());
        TuningKey { file_system: file_system.into(), source: "memory".into(), cpus, kernel, kelvin }
    }

    fn setting(source: DataSource, method_index: usize, threads: u32) -> ReadSetting {
        ReadSetting { method: source.methods()[method_index], threads }
    }

    #[test]
    fn path_follows_xdg_specification() {
        let path_with = |variables: &[(&str, &str)]| {
            let lookup =
                |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into());
            TuningCache::path_from_environment(lookup).map_err(|fault| format!("{fault:?}"))
        };
        assert_eq!(path_with(&[("HOME", "/home/k")]), Ok("/home/k/.cache/kelvin/digest.json".into()));
        let home_and_cache = [("HOME", "/home/k"), ("XDG_CACHE_HOME", "/cache")];
        assert_eq!(path_with(&home_and_cache), Ok("/cache/kelvin/digest.json".into()));
        assert!(path_with(&[("XDG_CACHE_HOME", "cache")]).unwrap_err().contains("not an absolute path: cache"));
        assert!(path_with(&[("HOME", "")]).unwrap_err().contains("neither XDG_CACHE_HOME nor HOME"));
    }

    #[test]
    fn settings_are_found_by_their_key_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/kelvin/digest.json");
        for source in [DataSource::Memory, DataSource::Device] {
            for index in 0..source.methods().len() {
                let mut before = TuningCache::read(path.clone()).unwrap();
                before.insert(tuning_key("ext4", 2), setting(source, index, 3));
                before.insert(tuning_key("xfs", 2), setting(source, 0, 1));
                before.save().unwrap();
                let after = TuningCache::read(path.clone()).unwrap();
                assert_eq!(after.find(&tuning_key("ext4", 2), source), Some(setting(source, index, 3)));
                assert_eq!(after.find(&tuning_key("ext4", 4), source), None);
                assert_eq!(after.settings.len(), 2);
            }
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn unknown_method_is_ignored_unchanged_cache_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("digest.json");
        let mut cache = TuningCache::empty(path.clone());
        cache.insert(tuning_key("ext4", 2), setting(DataSource::Memory, 0, 2));
        cache.save().unwrap();
        let mut reloaded = TuningCache::read(path.clone()).unwrap();
        reloaded.insert(tuning_key("ext4", 2), setting(DataSource::Memory, 0, 2));
        assert!(!reloaded.is_changed);
        reloaded.settings[0].block += 1;
        assert_eq!(reloaded.find(&tuning_key("ext4", 2), DataSource::Memory), None);
    }

    #[test]
    fn oldest_settings_are_dropped() {
        let mut cache = TuningCache::empty("/nowhere".into());
        for cpus in 0..MAX_SETTINGS as u32 + 5 {
            cache.insert(tuning_key("ext4", cpus), setting(DataSource::Memory, 0, 2));
        }
        assert_eq!((cache.settings.len(), cache.settings[0].circumstances.cpus), (MAX_SETTINGS, 5));
    }

    #[test]
    fn foreign_cache_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("digest.json");
        for (content, message) in [("", "not written by kelvin"), (r#"{"format": 9, "settings": []}"#, "has format 9")]
        {
            fs::write(&path, content).unwrap();
            let fault = format!("{:?}", TuningCache::read(path.clone()).unwrap_err());
            assert!(fault.contains(message), "{fault}");
        }
    }
}
