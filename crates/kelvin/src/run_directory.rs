//! The directory of `--out`, shared by hosts: each run is a file of its own there, named by host and time.

use std::io;
use std::path::{Path, PathBuf};

use kelvin_core::identifiers::short_hash;
use kelvin_core::{NODE_TAG, Run};
use kelvin_file::output_file::OutputFile;

use crate::cli_error::{CliError, Context};

/// A directory for the files of runs.
#[derive(Debug)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// The directory that `--out` names, which must be there and take a file.
    ///
    /// # Errors
    /// It is not there, or takes none.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        // Nothing is left under this name: what is made is removed again.
        OutputFile::find(&path.join(".kelvin-run")).context(format_args!("--out {}", path.display()))?;
        Ok(Self(path.to_owned()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a run in the format of `kelvin runs export`: its name appears once all of it is on its device. Returns its path.
    ///
    /// # Errors
    /// Those of writing: then nothing of it is there.
    pub fn write(&self, run: &Run) -> Result<PathBuf, CliError> {
        let path = self.path_of(run);
        OutputFile::find(&path)?.write(|out| kelvin_store::export(run, out).map_err(io::Error::other))?;
        Ok(path)
    }

    /// Two hosts may have one name, or begin in one second where neither has one: the second file has the id of its run too.
    fn path_of(&self, run: &Run) -> PathBuf {
        let stem = file_stem(run);
        let path = self.0.join(format!("{stem}.json"));
        if path.exists() { self.0.join(format!("{stem}-{}.json", run.header.id)) } else { path }
    }
}

/// `n17-20261130T083000Z`: by the tag `node`, or else the beginning of the hash of the host.
fn file_stem(run: &Run) -> String {
    let machine = &run.header.machine;
    let hash = machine.platform.host.get().unwrap_or(&machine.identity);
    let host = run.labels.tags.get(NODE_TAG).map_or_else(|| short_hash(hash), String::as_str);
    let time: String = run.header.started.chars().filter(|letter| !"-:".contains(*letter)).collect();
    let host = host.trim_start_matches('.').replace('/', "_");
    format!("{host}-{time}")
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Fact, Name};

    use super::*;

    fn run(node: Option<&str>) -> Run {
        let mut run = kelvin_analysis::testing::empty_run(&[]);
        run.header.started = "2026-11-30T08:30:05Z".into();
        run.header.machine.identity = "0123456789abcdef".into();
        run.header.machine.architecture = Name::new("x86_64");
        run.labels.tags.extend(node.map(|node| (NODE_TAG.to_owned(), node.to_owned())));
        run
    }

    #[test]
    fn file_is_named_by_host_and_time() {
        assert_eq!(file_stem(&run(Some("n17"))), "n17-20261130T083005Z");
        assert_eq!(file_stem(&run(Some("../rack:1/n17"))), "_rack:1_n17-20261130T083005Z");
        assert_eq!(file_stem(&run(None)), "01234567-20261130T083005Z");
        let mut of_host = run(None);
        of_host.header.machine.platform.host = Fact::known("fedcba9876543210".into(), "a test");
        assert_eq!(file_stem(&of_host), "fedcba98-20261130T083005Z");
    }

    #[test]
    fn second_run_of_a_second_replaces_none() {
        let directory = tempfile::tempdir().unwrap();
        let runs = RunDirectory::open(directory.path()).unwrap();
        let [first, second] = [runs.write(&run(Some("n17"))).unwrap(), runs.write(&run(Some("n17"))).unwrap()];
        assert_ne!(first, second);
        let mut names: Vec<PathBuf> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        let mut expected = [first, second];
        expected.sort();
        assert_eq!(names, expected, "no temporary file is left");
        for file in names {
            let run = kelvin_store::import(std::fs::File::open(file).unwrap()).unwrap();
            assert_eq!(run.labels.tags["node"], "n17");
        }
    }

    #[test]
    fn missing_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = RunDirectory::open(&directory.path().join("no/such")).unwrap_err().to_string();
        assert!(error.contains("--out") && error.contains("no/such"), "{error}");
    }
}
