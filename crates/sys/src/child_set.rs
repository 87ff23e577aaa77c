//! The children of a process that forks one for each piece of work: counted, reaped as they end, and none left behind.

use std::collections::HashSet;

use crate::process::fork_worker;
use crate::{Error, Result};

/// All children of this process. Dropped, they are killed and reaped.
#[derive(Debug, Default)]
pub struct ChildSet {
    ids: HashSet<libc::pid_t>,
}

impl ChildSet {
    /// None yet. This process has no others, and starts none in another way: every end of a child is reported here.
    ///
    /// # Errors
    /// Children from before; a SIGCHLD that cannot be had.
    pub fn new() -> Result<Self> {
        // A program may be started with SIGCHLD ignored, and then no child's end is reported to it. SAFETY: takes no pointers; SIG_DFL is a
        // valid disposition.
        if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(Error::last_os_error());
        }
        match reap_next() {
            None => Ok(Self::default()),
            Some(_) => Err(Error::other("this process has children already")),
        }
    }

    /// Forks one that does `work`, as [`fork_worker`], and returns its number.
    ///
    /// # Errors
    /// As there.
    pub fn fork(&mut self, work: impl FnOnce() -> u8) -> Result<i32> {
        let id = fork_worker(work)?.into_id();
        self.ids.insert(id);
        Ok(id)
    }

    /// Reaps those that have ended, calls `on_exit` with the number of each, and returns how many are left.
    pub fn reap(&mut self, mut on_exit: impl FnMut(i32)) -> usize {
        while !self.ids.is_empty() {
            let Some(id) = reap_next() else { break };
            self.ids.remove(&id);
            on_exit(id);
        }
        self.ids.len()
    }

    /// Asks all of them to end (SIGTERM).
    pub fn terminate_all(&self) {
        self.signal(libc::SIGTERM);
    }

    fn signal(&self, signal: libc::c_int) {
        for &id in &self.ids {
            // SAFETY: takes no pointers; the child is not reaped, so the number is still its own.
            unsafe { libc::kill(id, signal) };
        }
    }
}

/// A child that had ended, and is reaped.
fn reap_next() -> Option<libc::pid_t> {
    // SAFETY: a null status is allowed.
    let id = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    (id > 0).then_some(id)
}

impl Drop for ChildSet {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        for &id in &self.ids {
            // SAFETY: a null status is allowed; the child is ours, not reaped, and killed, so that the wait ends.
            unsafe { libc::waitpid(id, std::ptr::null_mut(), 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::process::{ExitKind, fork_worker};

    /// In a process that has no other children.
    fn in_clean_process(work: impl FnOnce() -> Result<bool>) {
        let child = fork_worker(|| u8::from(!work().unwrap_or(false))).unwrap();
        assert_eq!(child.wait().unwrap(), ExitKind::Exited(0));
    }

    #[test]
    fn children_are_reaped_as_they_end() {
        in_clean_process(|| {
            let mut children = ChildSet::new()?;
            let (mut reader, writer) = std::io::pipe()?;
            let mut forked = vec![children.fork(|| 0)?, children.fork(|| 9)?];
            forked.push(children.fork(move || {
                drop(writer);
                u8::from(reader.read(&mut [0]).is_ok())
            })?);
            let mut exited = Vec::new();
            while children.reap(|id| exited.push(id)) > 0 {}
            exited.sort_unstable();
            forked.sort_unstable();
            Ok(children.ids.is_empty() && exited == forked)
        });
    }

    #[test]
    fn drop_leaves_no_children() {
        in_clean_process(|| {
            let (mut reader, mut writer) = std::io::pipe()?;
            let mut children = ChildSet::new()?;
            for _ in 0..3 {
                children.fork(|| {
                    let _ = writer.write_all(b"x");
                    loop {
                        std::thread::park();
                    }
                })?;
            }
            reader.read_exact(&mut [0; 3])?;
            let is_all = children.reap(|_| ()) == 3;
            drop((children, writer));
            // The end of the pipe: nobody has the other end any more.
            Ok(is_all && reader.read(&mut [0])? == 0)
        });
    }
}
