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

use kelvin_file::fast::{ReadMethod, Setting, Source};
use kelvin_file::user_file::UserFile;
use kelvin_file::{Access, Target};
use kelvin_sys::fs::{identity, kind, major, minor};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// The format of the file; no other is read.
const FORMAT: u32 = 1;
/// The remedy for a file of another format.
const ANEW: &str = "--anew starts a new one";
/// Newest settings kept: far more than a machine has file systems.
const KEPT: usize = 100;

/// The contents of the file.
#[derive(Debug, Deserialize, Serialize)]
struct Content {
    format: u32,
    settings: Vec<Known>,
}

/// What a setting holds for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Circumstances {
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
struct Known {
    #[serde(flatten)]
    circumstances: Circumstances,
    engine: String,
    direct: bool,
    block: usize,
    threads: u32,
}

impl Circumstances {
    /// The conditions of a file, or why its file system cannot be identified.
    pub(super) fn of(target: &Target, source: Source, cpus: u32) -> Result<Self, Fault> {
        let path = target.path();
        let cannot = |error| Fault::new(format!("cannot look at the file system of {}", path.display()), error);
        let device = target.device();
        let (name, identity) = (kind(path).map_err(cannot)?.name(), identity(path).map_err(cannot)?);
        Ok(Self {
            file_system: format!("{name} {identity:016x} on {}:{}", major(device), minor(device)),
            source: source.name().to_owned(),
            cpus,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").map_err(cannot)?.trim().to_owned(),
            kelvin: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

impl Known {
    fn new(circumstances: Circumstances, Setting { way, threads }: Setting) -> Self {
        let ReadMethod { engine, access, block } = way;
        Self { circumstances, engine: engine.to_string(), direct: access == Access::Direct, block, threads }
    }

    /// The setting, if this kelvin has that method.
    fn setting(&self, source: Source) -> Option<Setting> {
        let same = |way: &&ReadMethod| {
            let theirs = (way.engine.to_string(), way.access == Access::Direct, way.block);
            (theirs.0 == self.engine, theirs.1, theirs.2) == (true, self.direct, self.block)
        };
        Some(Setting { way: *source.ways().iter().find(same)?, threads: self.threads })
    }
}

/// Settings found before and now.
#[derive(Debug)]
pub(super) struct Remembered {
    path: PathBuf,
    settings: Vec<Known>,
    changed: bool,
}

impl Remembered {
    /// Their path. `environment` looks a variable up.
    pub(super) fn place(environment: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Fault> {
        let directory = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = match (directory("XDG_CACHE_HOME"), directory("HOME")) {
            (Some(cache), _) if !cache.is_absolute() => {
                return Err(Fault::because(format!("XDG_CACHE_HOME is not an absolute path: {}", cache.display())));
            }
            (Some(cache), _) => cache,
            (None, Some(home)) => home.join(".cache"),
            (None, None) => return Err(Fault::because("neither XDG_CACHE_HOME nor HOME is set")),
        };
        Ok(cache.join("kelvin/digest.json"))
    }

    /// Reads them; empty if there is no file yet.
    ///
    /// # Errors
    /// A file that cannot be read, or that kelvin did not write.
    pub(super) fn read(path: PathBuf) -> Result<Self, Fault> {
        let settings = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Fault::new(format!("cannot read {}", path.display()), error)),
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(Content { format: FORMAT, settings }) => settings,
                Ok(Content { format, .. }) => {
                    let why =
                        format!("{} has format {format}, and this kelvin knows {FORMAT} ({ANEW})", path.display());
                    return Err(Fault::because(why));
                }
                Err(error) => {
                    return Err(Fault::new(format!("{} was not written by kelvin ({ANEW})", path.display()), error));
                }
            },
        };
        Ok(Self { path, settings, changed: false })
    }

    /// None yet, to be kept there.
    pub(super) fn nothing(path: PathBuf) -> Self {
        Self { path, settings: Vec::new(), changed: false }
    }

    /// What was found before.
    pub(super) fn find(&self, circumstances: &Circumstances, source: Source) -> Option<Setting> {
        self.settings.iter().find(|known| known.circumstances == *circumstances)?.setting(source)
    }

    /// Records what was found now.
    pub(super) fn note(&mut self, circumstances: Circumstances, setting: Setting) {
        let known = Known::new(circumstances, setting);
        if self.settings.contains(&known) {
            return;
        }
        self.settings.retain(|other| other.circumstances != known.circumstances);
        self.settings.push(known);
        self.settings.drain(..self.settings.len().saturating_sub(KEPT));
        self.changed = true;
    }

    /// Writes them if they changed, replacing the file.
    ///
    /// # Errors
    /// A directory that cannot be made or written.
    pub(super) fn keep(&self) -> Result<(), Fault> {
        if !self.changed {
            return Ok(());
        }
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        // For its owner only, as the specification asks.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| Fault::new(format!("cannot make {}", directory.display()), error))?;
        let content = Content { format: FORMAT, settings: self.settings.clone() };
        let place = UserFile::find(&self.path).map_err(Fault::because)?;
        let write = |out: &mut dyn Write| {
            serde_json::to_writer_pretty(&mut *out, &content)?;
            writeln!(out)
        };
        place.write_passing(write).map_err(Fault::because)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circumstances(file_system: &str, cpus: u32) -> Circumstances {
        let (kernel, kelvin) = ("6.1.0".into(), "0.1.0".into());
        Circumstances { file_system: file_system.into(), source: "memory".into(), cpus, kernel, kelvin }
    }

    fn setting(source: Source, way: usize, threads: u32) -> Setting {
        Setting { way: source.ways()[way], threads }
    }

    #[test]
    fn it_is_kept_in_the_directory_of_the_specification() {
        let with = |variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            Remembered::place(found).map_err(|fault| format!("{fault:?}"))
        };
        assert_eq!(with(&[("HOME", "/home/k")]), Ok("/home/k/.cache/kelvin/digest.json".into()));
        let both = [("HOME", "/home/k"), ("XDG_CACHE_HOME", "/cache")];
        assert_eq!(with(&both), Ok("/cache/kelvin/digest.json".into()));
        assert!(with(&[("XDG_CACHE_HOME", "cache")]).unwrap_err().contains("not an absolute path: cache"));
        assert!(with(&[("HOME", "")]).unwrap_err().contains("neither XDG_CACHE_HOME nor HOME"));
    }

    #[test]
    fn every_setting_is_found_again_under_its_circumstances_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/kelvin/digest.json");
        for source in [Source::Memory, Source::Device] {
            for way in 0..source.ways().len() {
                let mut before = Remembered::read(path.clone()).unwrap();
                before.note(circumstances("ext4", 2), setting(source, way, 3));
                before.note(circumstances("xfs", 2), setting(source, 0, 1));
                before.keep().unwrap();
                let after = Remembered::read(path.clone()).unwrap();
                assert_eq!(after.find(&circumstances("ext4", 2), source), Some(setting(source, way, 3)));
                assert_eq!(after.find(&circumstances("ext4", 4), source), None);
                assert_eq!(after.settings.len(), 2);
            }
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn a_way_that_is_no_more_is_not_remembered_and_what_is_known_is_not_written_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("digest.json");
        let mut known = Remembered::nothing(path.clone());
        known.note(circumstances("ext4", 2), setting(Source::Memory, 0, 2));
        known.keep().unwrap();
        let mut again = Remembered::read(path.clone()).unwrap();
        again.note(circumstances("ext4", 2), setting(Source::Memory, 0, 2));
        assert!(!again.changed);
        again.settings[0].block += 1;
        assert_eq!(again.find(&circumstances("ext4", 2), Source::Memory), None);
    }

    #[test]
    fn only_so_many_are_kept() {
        let mut known = Remembered::nothing("/nowhere".into());
        for cpus in 0..KEPT as u32 + 5 {
            known.note(circumstances("ext4", cpus), setting(Source::Memory, 0, 2));
        }
        assert_eq!((known.settings.len(), known.settings[0].circumstances.cpus), (KEPT, 5));
    }

    #[test]
    fn what_kelvin_did_not_write_is_said() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("digest.json");
        for (content, says) in [("", "not written by kelvin"), (r#"{"format": 9, "settings": []}"#, "has format 9")] {
            fs::write(&path, content).unwrap();
            let fault = format!("{:?}", Remembered::read(path.clone()).unwrap_err());
            assert!(fault.contains(says), "{fault}");
        }
    }
}
