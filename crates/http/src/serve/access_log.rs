//! The access log: a line for each answered request, in the formats of nginx and Apache.
//!
//! Who serves appends to a buffer in memory and never waits for a disk. A thread of its own writes that buffer each second, or sooner
//! if it is large. What cannot be written is lost and counted, and the server goes on.

mod connection_log;
mod line;
mod writer;

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kelvin_sys::lock;
use kelvin_sys::thread_spawn::ThreadBuilder;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, sendmsg, socketpair};

use crate::serve::error::{Error, Result};
use crate::serve::limits::ServerLimits;

pub(crate) use connection_log::ConnectionLog;
pub use line::LogFormat;
use line::{Line, LogClock};
use writer::LogWriter;

/// Bytes that are written as soon as they are there.
const WRITE_BYTES: usize = 64 << 10;
/// How long a line waits to be written at most.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Most bytes that wait: a second of half a million requests with the heads of browsers is less.
const MAX_WAITING_BYTES: usize = 128 << 20;
/// Time for what waits to be written at the end: a pipe may have a reader that is stuck.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// An access log.
#[derive(Debug)]
pub struct AccessLog {
    target: LogTarget,
    format: LogFormat,
    state: Mutex<LogState>,
    changed: Condvar,
    /// In a process that serves for another one, where its lines go.
    forward: Option<OwnedFd>,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// What is standard output when the log is opened.
    StandardOutput,
    /// A file, to which lines are appended.
    File(PathBuf),
}

#[derive(Debug, Default)]
struct LogState {
    /// Lines that are not written yet.
    waiting: Vec<u8>,
    clock: LogClock,
    /// What it was opened as, until the thread that writes has it.
    file: Option<File>,
    /// Lines that found no room.
    dropped: u64,
    must_reopen: bool,
    /// Whether lines of other processes may come.
    is_receiving: bool,
    is_over: bool,
    is_finished: bool,
    notices: Vec<String>,
}

impl AccessLog {
    /// One that is opened when the server has its rights.
    pub fn new(target: LogTarget, format: LogFormat) -> Self {
        let (state, changed) = Default::default();
        Self { target, format, state, changed, forward: None }
    }

    /// Opens it.
    pub(crate) fn open(&self) -> std::io::Result<()> {
        lock(&self.state).file = Some(self.target.open()?);
        Ok(())
    }

    /// Has its file opened anew, as after it was renamed; lines so far go to the former one.
    pub fn request_reopen(&self) {
        lock(&self.state).must_reopen = true;
        self.changed.notify_all();
    }

    /// What is to be said about it since this was asked last: that lines are lost, or that it could not be reopened.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).notices)
    }

    /// One for processes that serve, whose lines the other end receives.
    ///
    /// # Errors
    /// Those of socketpair.
    pub(crate) fn forwarding(&self) -> Result<(Self, OwnedFd)> {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (sender, receiver) = pair.map_err(Error::call("pass on lines of the access log"))?;
        Ok((Self { forward: Some(sender), ..Self::new(self.target.clone(), self.format) }, receiver))
    }

    /// Starts the thread that writes, and one that receives what other processes send there.
    ///
    /// # Errors
    /// What kept them from being started.
    pub(crate) fn start(self: &Arc<Self>, receiver: Option<OwnedFd>) -> Result<()> {
        let Some(file) = lock(&self.state).file.take() else { return Ok(()) };
        let log = Arc::clone(self);
        ThreadBuilder::named("access log").start(move || log.write_until_over(file)).map_err(Error::SpawnThread)?;
        if let Some(receiver) = receiver {
            lock(&self.state).is_receiving = true;
            let log = Arc::clone(self);
            let receive = move || log.receive_until_closed(&receiver);
            ThreadBuilder::named("access log").start(receive).map_err(Error::SpawnThread)?;
        }
        Ok(())
    }

    /// Waits until all lines are written, once nobody serves any more.
    pub(crate) fn finish(&self) {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        self.wait_while(deadline, |state| state.is_receiving);
        lock(&self.state).is_over = true;
        self.changed.notify_all();
        self.wait_while(deadline, |state| !state.is_finished);
        let mut state = lock(&self.state);
        if !state.is_finished {
            let limit = FINISH_TIMEOUT.as_secs();
            state.notices.push(format!("access log {}: its end was not written within {limit} s", self.target));
        }
    }

    /// Appends a line.
    fn append(&self, line: &Line<'_>) {
        let mut state = lock(&self.state);
        let LogState { waiting, clock, .. } = &mut *state;
        let begin = waiting.len();
        line.append_to(waiting, clock);
        match &self.forward {
            Some(socket) => {
                // Who receives never waits. Where it has gone, this process ends as well.
                let parts = [IoSlice::new(waiting)];
                let _ = sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
                waiting.clear();
            }
            None => self.bound(&mut state, begin),
        }
    }

    /// Takes back what was appended from there on if too much waits, and has it written if it is enough.
    fn bound(&self, state: &mut LogState, begin: usize) {
        if state.waiting.len() > MAX_WAITING_BYTES {
            state.waiting.truncate(begin);
            state.dropped += 1;
        } else if begin < WRITE_BYTES && state.waiting.len() >= WRITE_BYTES {
            self.changed.notify_all();
        }
    }

    fn receive_until_closed(&self, receiver: &OwnedFd) {
        // A line is at most as long as a request in which each byte is escaped.
        let mut line = vec![0; 4 * ServerLimits::default().head_bytes + (1 << 10)];
        while let Ok((_, length @ 1..)) = retry_on_intr(|| recv(receiver.as_fd(), &mut line[..], RecvFlags::empty())) {
            let mut state = lock(&self.state);
            let begin = state.waiting.len();
            state.waiting.extend_from_slice(&line[..length]);
            self.bound(&mut state, begin);
        }
        lock(&self.state).is_receiving = false;
        self.changed.notify_all();
    }

    fn write_until_over(&self, file: File) {
        let mut writer = LogWriter::new(file);
        let mut lines = Vec::new();
        loop {
            let mut state = self.wait_for_lines();
            std::mem::swap(&mut state.waiting, &mut lines);
            let (dropped, must_reopen) = (std::mem::take(&mut state.dropped), std::mem::take(&mut state.must_reopen));
            let is_over = state.is_over;
            drop(state);
            let mut notices = Vec::new();
            notices.extend(writer.write(&lines, dropped));
            lines.clear();
            // After a burst.
            lines.shrink_to(2 * WRITE_BYTES);
            if must_reopen {
                notices.extend(
                    self.target
                        .open()
                        .map(|file| writer.replace(file))
                        .err()
                        .map(|error| format!("lines go on being appended to what was opened before: {error}")),
                );
            }
            if is_over {
                notices.extend(writer.final_notice());
            }
            let mut state = lock(&self.state);
            state.notices.extend(notices.into_iter().map(|notice| format!("access log {}: {notice}", self.target)));
            state.is_finished = is_over;
            drop(state);
            if is_over {
                return self.changed.notify_all();
            }
        }
    }

    /// Waits until there is something to be done.
    fn wait_for_lines(&self) -> std::sync::MutexGuard<'_, LogState> {
        let is_idle = |state: &mut LogState| state.waiting.len() < WRITE_BYTES && !state.is_over && !state.must_reopen;
        let waited = self.changed.wait_timeout_while(lock(&self.state), WRITE_INTERVAL, is_idle);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn wait_while(&self, deadline: Instant, is_waiting: impl Fn(&LogState) -> bool) {
        let remaining = deadline.saturating_duration_since(Instant::now());
        drop(self.changed.wait_timeout_while(lock(&self.state), remaining, |state| is_waiting(state)));
    }
}

impl LogTarget {
    fn open(&self) -> std::io::Result<File> {
        match self {
            Self::StandardOutput => Ok(std::io::stdout().as_fd().try_clone_to_owned()?.into()),
            Self::File(path) => File::options().append(true).create(true).open(path),
        }
    }
}

impl std::fmt::Display for LogTarget {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::StandardOutput => out.write_str("-"),
            Self::File(path) => path.display().fmt(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn log(path: PathBuf) -> Arc<AccessLog> {
        let log = AccessLog::new(LogTarget::File(path), LogFormat::Common);
        log.open().unwrap();
        Arc::new(log)
    }

    fn append(log: &AccessLog, request: &str) {
        let (request, client) = (request.as_bytes(), &b""[..]);
        log.append(&Line { peer: "192.0.2.1", request, status: 200, bytes: 5, client });
    }

    /// The requests of the lines of a file.
    fn requests(path: &std::path::Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn lines_before_a_reopening_are_in_the_renamed_file() {
        let directory = tempfile::tempdir().unwrap();
        let [path, renamed] = ["access.log", "access.log.1"].map(|name| directory.path().join(name));
        let log = log(path.clone());
        append(&log, "first");
        log.start(None).unwrap();
        fs::rename(&path, &renamed).unwrap();
        append(&log, "second");
        log.request_reopen();
        while !path.exists() {
            std::thread::yield_now();
        }
        append(&log, "third");
        log.finish();
        assert_eq!(
            (requests(&renamed), requests(&path)),
            (vec!["first".into(), "second".into()], vec!["third".into()])
        );
        assert_eq!(log.take_notices(), Vec::<String>::new());
    }

    #[test]
    fn log_that_cannot_be_reopened_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gone/access.log");
        fs::create_dir(path.parent().unwrap()).unwrap();
        let log = log(path.clone());
        let kept = directory.path().join("kept");
        fs::rename(path.parent().unwrap(), &kept).unwrap();
        log.start(None).unwrap();
        log.request_reopen();
        log.finish();
        let [notice] = &log.take_notices()[..] else { panic!() };
        assert!(notice.contains("gone/access.log: lines go on being appended to what was opened before: No such file"));
    }

    #[test]
    fn lines_of_other_processes_arrive_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let log = log(path.clone());
        let (forwarding, receiver) = log.forwarding().unwrap();
        log.start(Some(receiver)).unwrap();
        let long = "x".repeat(4 * ServerLimits::default().head_bytes);
        ["a", &long, "b"].into_iter().for_each(|request| append(&forwarding, request));
        drop(forwarding);
        log.finish();
        assert_eq!(requests(&path), ["a", &long, "b"]);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let log = AccessLog::new(LogTarget::File("/dev/null".into()), LogFormat::Common);
        lock(&log.state).waiting = vec![b'\n'; MAX_WAITING_BYTES];
        append(&log, "a");
        let state = lock(&log.state);
        assert_eq!((state.waiting.len(), state.dropped), (MAX_WAITING_BYTES, 1));
    }
}
