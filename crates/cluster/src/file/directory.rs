//! The directory of a job, which rank 0 makes in the directory that the user names, and removes with all that is in it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kelvin_sys::random::kernel_random;
use kelvin_sys::thread_spawn::process_error;

/// How it is named, so that somebody who finds one after a loss of power knows what it was.
const PREFIX: &str = "kelvin-cluster-";
/// The file by which other ranks know it.
const PROBE: &str = "probe";
/// Removes a directory. While other ranks end, files may still come into it, so that it is tried again.
const REMOVE: &str =
    "for attempt in 1 2 3 4 5; do rm -rf -- \"$1\" 2>/dev/null && exit; sleep 0.5; done; exec rm -rf -- \"$1\"";

/// The directory as rank 0 has it.
#[derive(Debug)]
pub struct JobDirectory {
    path: PathBuf,
    probe: String,
}

impl JobDirectory {
    /// Makes it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn create(parent: &Path) -> io::Result<Self> {
        let path = std::path::absolute(parent)?.join(format!("{PREFIX}{:016x}", kernel_random()?));
        let probe = format!("{:016x}{:016x}", kernel_random()?, kernel_random()?);
        fs::create_dir(&path)?;
        let directory = Self { path, probe };
        fs::write(directory.path.join(PROBE), &directory.probe)?;
        Ok(directory)
    }

    /// Where it is, for all ranks.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a rank reads in it if it is the same directory.
    pub fn probe(&self) -> &str {
        &self.probe
    }

    /// A file in it.
    pub fn probe_path(&self) -> PathBuf {
        self.path.join(PROBE)
    }

    /// Makes a directory in it.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn create_part(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).map(|()| path)
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    /// Those of the system calls, with its path.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot remove {}: {error}", self.path.display())))
    }
}

/// Checks that a directory is that of rank 0.
///
/// # Errors
/// What this host has there instead.
pub fn check_probe(directory: &Path, probe: &str) -> Result<(), String> {
    match fs::read_to_string(directory.join(PROBE)) {
        Ok(text) if text == probe => Ok(()),
        Ok(_) => Err("the file there is another one".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Removes the directory of a job that ends early, by a process that outlives this one: the launcher may kill this one at any moment.
///
/// # Errors
/// Those of starting a process.
pub fn remove_in_background(directory: &Path) -> io::Result<()> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", REMOVE, "sh"]).arg(directory).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(process_error)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn directory_is_known_by_its_probe_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| JobDirectory::create(parent.path()).unwrap());
        assert_ne!(first.path(), second.path());
        assert_eq!(check_probe(first.path(), first.probe()), Ok(()));
        assert_eq!(check_probe(second.path(), first.probe()), Err("the file there is another one".into()));
        let part = first.create_part("part").unwrap();
        fs::write(part.join("file"), "content").unwrap();
        first.remove().unwrap();
        assert!(!first.path().exists() && second.path().exists());
        let error = check_probe(first.path(), first.probe()).unwrap_err();
        assert!(error.starts_with("No such file"), "{error}");
        let error = first.remove().unwrap_err().to_string();
        assert!(error.starts_with("cannot remove "), "{error}");
    }

    #[test]
    fn directory_of_a_job_that_ends_early_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = JobDirectory::create(parent.path()).unwrap();
        fs::write(directory.create_part("part").unwrap().join("file"), "content").unwrap();
        remove_in_background(directory.path()).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while directory.path().exists() {
            assert!(Instant::now() < end, "it is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
