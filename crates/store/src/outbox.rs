//! Runs on their way to a server.
//!
//! A run for a server is stored in a local file while it is measured, so that nothing travels between its rounds, and that a
//! server that is lost costs nothing. When it has ended it is sent whole, in one transaction, and only then removed here. Whatever
//! is killed when, the next program that reaches the server goes on: a run that is there already is found there, and not sent twice.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::copy::copy_compared;
use crate::error::{CopyError, UploadError};
use crate::sql::values;
use crate::{RunFilter, RunSummary, Store};

/// What the name of the file ends with that programs hold while they record runs for a server.
const RECORDING_SUFFIX: &str = "-recording";

/// What the name of the file ends with that the one program holds that watches the machine.
const WATCH_SUFFIX: &str = "-watching";

/// Shows other programs that this one records a run here, or watches the machine, until it is dropped or its process ends.
#[derive(Debug)]
pub struct StoreLock {
    _file: File,
}

/// What came of sending runs.
#[derive(Debug, Default)]
pub struct UploadResult {
    /// Runs that the server has now and that are no longer here.
    pub sent: usize,
    /// Runs that stay here, and why: the server has another run with the same id, or they are damaged.
    pub failures: Vec<(String, CopyError)>,
}

impl Store {
    /// Shows that a run is being recorded in this file.
    ///
    /// # Errors
    /// If the lock file next to it cannot be made or locked.
    pub fn lock_recording(&self) -> io::Result<StoreLock> {
        let file = self.lock_file(RECORDING_SUFFIX)?;
        file.lock_shared()?;
        Ok(StoreLock { _file: file })
    }

    /// Shows that this program watches the machine with this file as its store; `None` if another one does.
    ///
    /// # Errors
    /// If the lock file next to it cannot be made or locked.
    pub fn try_lock_watch(&self) -> io::Result<Option<StoreLock>> {
        let file = self.lock_file(WATCH_SUFFIX)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(StoreLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Sends all runs that wait in this file for that server, the oldest first. One that was killed is sent as the partial run that
    /// it is; one that is being recorded stays.
    ///
    /// # Errors
    /// If one of the stores fails: what was sent by then is sent.
    pub fn upload_pending(&self, server: &Store) -> Result<UploadResult, UploadError> {
        let mut result = UploadResult::default();
        let Some(key) = server.key() else { return Ok(result) };
        let is_pending = |line: &RunSummary| line.pending_server.as_deref() == Some(key);
        let list = || self.list(&RunFilter::default()).map_err(UploadError::Local);
        if !list()?.iter().any(is_pending) {
            return Ok(result);
        }
        self.finish_killed_runs()?;
        for line in list()?.iter().filter(|line| is_pending(line) && line.status.is_some()) {
            match copy_compared(self, server, line) {
                Ok(_) => {
                    self.connection()
                        .execute("DELETE FROM run WHERE id = $1", values![&line.id])
                        .map_err(UploadError::Local)?;
                    result.sent += 1;
                }
                Err(error) if error.is_store_failure() => return Err(UploadError::Copy(Box::new(error))),
                Err(error) => result.failures.push((line.id.clone(), error)),
            }
        }
        if result.sent > 0 {
            self.reclaim().map_err(UploadError::Local)?;
        }
        Ok(result)
    }

    /// Gives runs for a server that were killed their end, unless some program is recording one.
    fn finish_killed_runs(&self) -> Result<(), UploadError> {
        let lock = self.lock_file(RECORDING_SUFFIX).map_err(UploadError::Lock)?;
        if lock.try_lock().is_err() {
            return Ok(());
        }
        for line in self.list(&RunFilter::default()).map_err(UploadError::Local)? {
            if line.pending_server.is_none() || line.status.is_some() {
                continue;
            }
            // One that cannot be read cannot be sent either, and is named when that is tried.
            if let Ok(run) = self.load_id(&line.id) {
                self.store_partial_end(&run)
                    .map_err(|error| UploadError::Copy(Box::new(CopyError::Insert(error.into()))))?;
            }
        }
        Ok(())
    }

    fn lock_file(&self, suffix: &str) -> io::Result<File> {
        let path = PathBuf::from(format!("{}{suffix}", self.name()));
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
    }
}
