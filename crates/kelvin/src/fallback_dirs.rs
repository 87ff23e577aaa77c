//! Where a file can lie for which there is no room in its own place: of a store whose disk is full.

use std::path::PathBuf;

/// Directories that may be on other disks, those first whose files stay: the current one, those for temporary files, and memory.
pub fn fallback_directories() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let directories = std::env::current_dir().ok().into_iter().chain([std::env::temp_dir(), "/var/tmp".into()]);
    directories.chain(runtime).chain(["/dev/shm".into()]).filter(|path| path.is_dir()).collect()
}
