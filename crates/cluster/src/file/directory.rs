//! The directory of a job, which rank 0 makes in the directory that the user names, and removes with all that is in it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kelvin_sys::random::kernel_random;
use kelvin_sys::thread_spawn::process_error;

/// How it is named, so that somebody who finds one after a loss of power knows what it was.
const PREFIX: &str = "kelvin-cluster-";
/// The file by which other ranks know it.
const PROBE: &str = "probe";
/// Waits for the end of what it reads, which is that of rank 0, and removes a directory. While other ranks end, files may still come into it,
/// so that it is tried again.
const REMOVE: &str = "while read -r line; do :; done
for attempt in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- \"$1\" 2>/dev/null; [ -e \"$1\" ] || exit; sleep 0.5; done";

/// The directory as rank 0 has it.
#[derive(Debug)]
pub struct JobDirectory {
    path: PathBuf,
    probe: String,
    /// Removes it when this process ends, in whatever way: the launcher may kill it at any moment.
    remover: Child,
    /// How many parts were made in it.
    parts: usize,
}

impl JobDirectory {
    /// Makes it in a directory that is named by its whole path, since other ranks may run elsewhere.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn create(parent: &Path) -> io::Result<Self> {
        let path = parent.join(format!("{PREFIX}{:016x}", kernel_random()?));
        let probe = format!("{:016x}{:016x}", kernel_random()?, kernel_random()?);
        fs::create_dir(&path)?;
        let remover = start_remover(&path)?;
        let directory = Self { path, probe, remover, parts: 0 };
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

    /// Makes a directory in it, under a name that it never had: hosts may remember for some seconds what they found under another one.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn create_part(&mut self, name: &str) -> io::Result<PathBuf> {
        self.parts += 1;
        let path = self.path.join(format!("{name}.{}", self.parts));
        fs::create_dir(&path).map(|()| path)
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    /// Those of the system calls, with its path.
    pub fn remove(mut self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot remove {}: {error}", self.path.display())))?;
        // It reads the end, finds nothing and ends.
        self.remover.wait().map(drop)
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

/// In a process group of its own: a launcher ends that of rank 0.
fn start_remover(directory: &Path) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", REMOVE, "sh"]).arg(directory).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(process_error)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn directory_is_known_by_its_probe_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let [mut first, second] = [(); 2].map(|()| JobDirectory::create(parent.path()).unwrap());
        assert_ne!(first.path(), second.path());
        assert_eq!(check_probe(first.path(), first.probe()), Ok(()));
        assert_eq!(check_probe(second.path(), first.probe()), Err("the file there is another one".into()));
        let part = first.create_part("part").unwrap();
        fs::write(part.join("file"), "content").unwrap();
        fs::remove_dir_all(&part).unwrap();
        let next_part = first.create_part("part").unwrap();
        assert!(next_part != part && next_part.exists() && !part.exists(), "{part:?}, {next_part:?}");
        fs::write(next_part.join("file"), "content").unwrap();
        let path = first.path().to_owned();
        first.remove().unwrap();
        assert!(!path.exists() && second.path().exists());
        let error = check_probe(&path, second.probe()).unwrap_err();
        assert!(error.starts_with("No such file"), "{error}");
        fs::remove_dir_all(second.path()).unwrap();
        let error = second.remove().unwrap_err().to_string();
        assert!(error.starts_with("cannot remove "), "{error}");
    }

    #[test]
    fn directory_of_a_job_that_ends_early_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let mut directory = JobDirectory::create(parent.path()).unwrap();
        fs::write(directory.create_part("part").unwrap().join("file"), "content").unwrap();
        let path = directory.path().to_owned();
        // As the end of the process does it.
        drop(directory);
        let end = Instant::now() + Duration::from_secs(60);
        while path.exists() {
            assert!(Instant::now() < end, "it is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
