//! Runs of hosts from files: those that are named, and those in directories that are.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kelvin_analysis::analyse;
use kelvin_core::{IndirectSort, Run, RunStatus, StoredHeadline};

use crate::cli_error::{CliError, Context};

/// A run from a file, without its samples.
pub struct FileRun {
    pub run: Run,
    pub headlines: Vec<StoredHeadline>,
}

/// The files of a name that is a file or a directory; `None` of any other name.
///
/// # Errors
/// A directory that cannot be read or has no run file.
pub fn run_files(name: &OsStr) -> Result<Option<Vec<PathBuf>>, CliError> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(Some(vec![path.to_path_buf()]));
    }
    if !path.is_dir() {
        return Ok(None);
    }
    let entries = fs::read_dir(path).context(format_args!("cannot read {}", path.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.context(format_args!("cannot read {}", path.display()))?.path();
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && file.extension().is_some_and(|ending| ending == "json") && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        bail!("{}: the directory has no run file (*.json): `kelvin runs export` writes one", path.display());
    }
    files.indirect_sort();
    Ok(Some(files))
}

/// Reads a run and computes its headlines; `None` of a run that is not complete.
///
/// # Errors
/// A file that cannot be read, or is no run.
pub fn read_run(path: &Path) -> Result<Option<FileRun>, CliError> {
    let file = File::open(path).context(format_args!("cannot open {}", path.display()))?;
    let run = kelvin_store::import(file).context(path.display())?;
    if run.status != RunStatus::Complete || run.header.foreign.is_some() {
        return Ok(None);
    }
    let headlines = analyse(&run).stored_headlines(|_| true);
    let mut run = run.without_samples();
    run.measurements.clear();
    run.predictions.clear();
    Ok(Some(FileRun { run, headlines }))
}
