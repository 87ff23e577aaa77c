//! A child process that ends with its parent, can be killed with all its descendants, and is always reaped.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags};

use crate::clock::monotonic;
use crate::fs::set_status_flag;
use crate::process::{ExitKind, end_with_parent_by};
use crate::procfs::ProcessStat;
use crate::thread_spawn::process_error;
use crate::usage::Usage;
use crate::{Error, Result, poll};

/// The result of a guarded child.
#[derive(Debug)]
pub struct ChildOutput {
    /// Its standard output, up to the limit.
    pub output: Vec<u8>,
    /// The end of its standard error.
    pub stderr: String,
    /// How it ended.
    pub end: ChildEnd,
}

/// How a guarded child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildEnd {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It overran its time and was killed.
    TimedOut,
    /// It wrote more than its limit and was killed.
    TooMuchOutput,
    /// This process was asked to stop, and killed it.
    Interrupted,
}

impl ChildEnd {
    fn of_status(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Exited(code),
            None => Self::Signalled(status.signal().unwrap_or(0)),
        }
    }
}

/// A running child. Dropped, it is killed with its process group and reaped.
#[derive(Debug)]
pub struct GuardedChild {
    child: Child,
    group: libc::pid_t,
    end_with_parent: EndWithParent,
    is_reaped: bool,
}

/// How a child ends where this process does, or the thread that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndWithParent {
    /// It is killed, also when a signal asks this process to stop.
    Killed,
    /// The kernel sends it SIGTERM, so that it can write what it has and remove its files. A signal that asks this process to stop does
    /// nothing to it until this process ends.
    Terminated,
}

impl EndWithParent {
    const fn signal(self) -> libc::c_int {
        match self {
            Self::Killed => libc::SIGKILL,
            Self::Terminated => libc::SIGTERM,
        }
    }
}

/// How long a child is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimit {
    /// So long in any case; then for as long again as the last time has shown activity of it or its children.
    pub initial: Duration,
    /// No longer than this in all.
    pub max: Duration,
}

impl WaitLimit {
    /// This long, with or without activity.
    pub const fn fixed(limit: Duration) -> Self {
        Self { initial: limit, max: limit }
    }
}

/// Maximum bytes of standard error kept.
const STDERR_BYTES: usize = 4096;

/// Makes this process the subreaper of its descendants' orphans.
pub fn adopt_orphans() -> Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Starts a program, and reports on which nanosecond of the monotonic clock that began.
///
/// Without a hook between fork and exec the standard library starts it by posix_spawn(3), which copies no memory of this process: at exec(2)
/// there is none to give back. Its peak of resident memory begins at that of this process, which [`crate::resident_set::shrink`] lowers.
///
/// # Errors
/// Those of starting it.
pub fn spawn_timed(command: &mut Command) -> Result<(Child, u64)> {
    let start = monotonic();
    let child = command.spawn().map_err(process_error)?;
    Ok((child, start))
}

/// Waits for a child: how it ended, and its counters, with those of all descendants that were waited for.
///
/// # Errors
/// Those of wait4(2).
pub fn wait_with_usage(child: Child) -> Result<(ExitStatus, Usage)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call. The child has not been waited for: this function owns it.
    while unsafe { libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, &raw mut raw) } < 0 {
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok((ExitStatus::from_raw(status), Usage::of_raw(&raw)))
}

/// Reaps children that have ended; whether others are left.
pub fn reap_children() -> bool {
    loop {
        // SAFETY: a null status is allowed.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            0 => return true,
            reaped if reaped > 0 => {}
            _ => return false,
        }
    }
}

impl GuardedChild {
    /// Starts a program in a process group of its own; it is killed when the calling thread's process ends.
    pub fn spawn<I, K, V>(program: &OsStr, arguments: &[&str], environment: I) -> Result<Self>
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        Self::spawn_ended_by(EndWithParent::Killed, program, arguments, environment)
    }

    /// Starts a program in a process group of its own, which ends with this process in this way.
    ///
    /// # Errors
    /// Those of starting it: `NotFound` where there is no such program.
    pub fn spawn_ended_by<I, K, V>(
        end_with_parent: EndWithParent,
        program: &OsStr,
        arguments: &[&str],
        environment: I,
    ) -> Result<Self>
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let parent = std::process::id();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: between fork and exec only prctl, getppid and _exit are called, all async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                end_with_parent_by(end_with_parent.signal(), parent);
                Ok(())
            });
        }
        let child = command.spawn().map_err(process_error)?;
        let group = child.id() as libc::pid_t;
        Ok(Self { child, group, end_with_parent, is_reaped: false })
    }

    /// Writes its standard input and closes it. A child that does not read is not an error here, but when it ends.
    pub fn write_stdin(&mut self, input: &[u8]) {
        if let Some(mut pipe) = self.child.stdin.take() {
            let _ = pipe.write_all(input);
        }
    }

    /// Writes a line to its standard input.
    fn write_line(&mut self, line: &[u8]) {
        if let Some(pipe) = &mut self.child.stdin {
            // One that has ended reads nothing, and is seen to have ended.
            let _ = pipe.write_all(&[line, b"\n"].concat());
        }
    }

    /// Readable when the process ends; none before Linux 5.3.
    fn exit_descriptor(&self) -> Option<OwnedFd> {
        let process = Pid::from_raw(self.group)?;
        rustix::process::pidfd_open(process, PidfdFlags::empty()).ok()
    }

    /// Number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first lines of its standard output: how a server reports that it is ready. Fewer where this many do not come within the time,
    /// or within this many bytes; what comes after them is not kept.
    pub fn first_lines(&mut self, count: usize, timeout: Duration, bytes: usize) -> Result<Vec<String>> {
        let deadline = monotonic() + timeout.as_nanos() as u64;
        let mut output = OutputPipe::new(self.child.stdout.take());
        let lines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count();
        while output.is_open() && output.bytes.len() <= bytes && lines(&output.bytes) < count {
            if crate::stop_signals::stop_signal().is_some() || monotonic() >= deadline {
                break;
            }
            if wait_readable([output.as_fd()], deadline)? {
                output.read(usize::MAX)?;
            }
        }
        let line_count = lines(&output.bytes).min(count);
        let lines = String::from_utf8_lossy(&output.bytes).lines().take(line_count).map(str::to_owned).collect();
        self.child.stdout = output.pipe;
        Ok(lines)
    }

    /// How it has ended by itself; `None` while it runs.
    pub fn peek_exit(&self) -> Option<ExitKind> {
        crate::process::peek_exit(self.group).ok()?
    }

    /// What it has written to standard error until now.
    pub fn stderr(&mut self) -> String {
        let mut stderr = OutputPipe::new(self.child.stderr.take());
        // What cannot be read is no complaint.
        let _ = stderr.read(STDERR_BYTES);
        let text = stderr.text();
        self.child.stderr = stderr.pipe;
        text
    }

    /// Waits until it has ended, as long as the limit allows; reads at most `bytes` of its output. This process sleeps, without
    /// polling, until the child writes, ends, or the time is over.
    pub fn wait(mut self, limit: WaitLimit, bytes: usize) -> Result<ChildOutput> {
        let mut deadline = GroupDeadline::new(self.group, limit);
        let mut output = OutputPipe::new(self.child.stdout.take());
        let mut stderr = OutputPipe::new(self.child.stderr.take());
        let exit = self.exit_descriptor();
        let mut end = None;
        while (output.is_open() || stderr.is_open()) && !(exit.is_some() && crate::process::has_ended(self.group)) {
            let streams = [output.as_fd(), stderr.as_fd(), exit.as_ref().map(AsFd::as_fd)];
            if self.is_asked_to_stop() {
                end = Some(ChildEnd::Interrupted);
            } else if output.bytes.len() > bytes {
                end = Some(ChildEnd::TooMuchOutput);
            } else if wait_readable(streams, deadline.next_check)? {
                output.read(usize::MAX)?;
                stderr.read(STDERR_BYTES)?;
            } else if deadline.is_expired() {
                end = Some(ChildEnd::TimedOut);
            }
            if end.is_some() {
                break;
            }
        }
        if end.is_none() {
            // What it wrote before it ended is there.
            while output.read(usize::MAX)? || stderr.read(STDERR_BYTES)? {}
        }
        // All pipes are closed: the child is ending, but a descendant may linger. The child itself is not reaped, so that its process
        // group stays its own.
        while end.is_none() && !crate::process::has_ended(self.group) {
            if self.is_asked_to_stop() {
                end = Some(ChildEnd::Interrupted);
            } else if deadline.is_expired() {
                end = Some(ChildEnd::TimedOut);
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let status = self.kill_group()?;
        let end = end.unwrap_or_else(|| ChildEnd::of_status(status));
        Ok(ChildOutput { stderr: stderr.text(), output: output.bytes, end })
    }

    fn is_asked_to_stop(&self) -> bool {
        self.end_with_parent == EndWithParent::Killed && crate::stop_signals::stop_signal().is_some()
    }

    /// Kills what is left of the process group, and reaps all of it that is ours.
    fn kill_group(&mut self) -> Result<ExitStatus> {
        // SAFETY: takes no pointers; the group was made for this child, and its leader is not reaped before.
        unsafe { libc::kill(-self.group, libc::SIGKILL) };
        let status = self.child.wait();
        self.is_reaped = true;
        // SAFETY: as above; a null status is allowed. Ends when the group has no more children of this process.
        while unsafe { libc::waitpid(-self.group, std::ptr::null_mut(), 0) } > 0 {}
        status
    }
}

impl Drop for GuardedChild {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.kill_group();
        }
    }
}

/// A guarded child that answers requests one after another, each of them a line.
pub struct AnsweringChild {
    child: GuardedChild,
    output: OutputPipe<ChildStdout>,
    stderr: OutputPipe<ChildStderr>,
    /// Readable when the process ends; none before Linux 5.3.
    exit: Option<OwnedFd>,
}

/// What comes of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The answer without its newline, and the end of what was written to standard error meanwhile.
    Answered {
        /// The line.
        line: Vec<u8>,
        /// See above.
        stderr: String,
    },
    /// The child ended, or was killed with its process group.
    Ended {
        /// How.
        end: ChildEnd,
        /// The end of its standard error.
        stderr: String,
    },
}

impl AnsweringChild {
    /// Starts a program in a process group of its own; it is killed when the calling thread's process ends.
    ///
    /// # Errors
    /// Those of starting it.
    pub fn spawn(program: &OsStr, arguments: &[&str]) -> Result<Self> {
        let mut child = GuardedChild::spawn(program, arguments, std::iter::empty::<(&str, &str)>())?;
        let (output, stderr) = (OutputPipe::new(child.child.stdout.take()), OutputPipe::new(child.child.stderr.take()));
        let exit = child.exit_descriptor();
        Ok(Self { child, output, stderr, exit })
    }

    /// Sends a line, and waits for one of at most this many bytes, no longer than this. This process sleeps meanwhile. Without an answer
    /// the child has ended: a further request has none either.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn request(&mut self, line: &[u8], limit: Duration, bytes: usize) -> Result<RequestOutcome> {
        let deadline = monotonic().saturating_add(limit.as_nanos() as u64);
        self.output.bytes.clear();
        self.stderr.bytes.clear();
        self.child.write_line(line);
        let mut end = None;
        while end.is_none() && self.output.is_open() && !self.has_ended() {
            if let Some(length) = self.output.bytes.iter().position(|&byte| byte == b'\n') {
                // What was written before the answer is there.
                while self.stderr.read(STDERR_BYTES)? {}
                self.output.bytes.truncate(length);
                let line = std::mem::take(&mut self.output.bytes);
                return Ok(RequestOutcome::Answered { line, stderr: self.stderr.text() });
            }
            let streams = [self.output.as_fd(), self.stderr.as_fd(), self.exit.as_ref().map(AsFd::as_fd)];
            if self.child.is_asked_to_stop() {
                end = Some(ChildEnd::Interrupted);
            } else if self.output.bytes.len() > bytes {
                end = Some(ChildEnd::TooMuchOutput);
            } else if wait_readable(streams, deadline)? {
                self.output.read(usize::MAX)?;
                self.stderr.read(STDERR_BYTES)?;
            } else if monotonic() >= deadline {
                end = Some(ChildEnd::TimedOut);
            }
        }
        while self.stderr.read(STDERR_BYTES)? {}
        let status = self.child.kill_group()?;
        let end = end.unwrap_or_else(|| ChildEnd::of_status(status));
        Ok(RequestOutcome::Ended { end, stderr: self.stderr.text() })
    }

    fn has_ended(&self) -> bool {
        self.exit.is_some() && crate::process::has_ended(self.child.group)
    }
}

/// When a group of processes is given up.
struct GroupDeadline {
    group: libc::pid_t,
    limit: u64,
    /// The next time that activity is read, and the last.
    next_check: u64,
    last: u64,
    activity: [u64; 3],
}

impl GroupDeadline {
    fn new(group: libc::pid_t, wait_limit: WaitLimit) -> Self {
        let [limit, max_limit] = [wait_limit.initial, wait_limit.max].map(|time| time.as_nanos() as u64);
        let now = monotonic();
        Self { group, limit, next_check: now + limit, last: now + max_limit.max(limit), activity: [0; 3] }
    }

    /// Whether it has passed, and cannot be put off.
    fn is_expired(&mut self) -> bool {
        let now = monotonic();
        if now < self.next_check {
            return false;
        }
        if self.next_check >= self.last {
            return true;
        }
        let activity = group_activity(self.group);
        let is_over = activity == std::mem::replace(&mut self.activity, activity);
        self.next_check = self.last.min(now + self.limit);
        is_over
    }
}

/// What only grows while processes of a group do something: ticks of CPU time, page faults that waited for a device, and bytes of
/// calls and of devices, where they may be read.
fn group_activity(group: libc::pid_t) -> [u64; 3] {
    let mut activity = [0; 3];
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    for number in numbers.filter_map(|name| name.to_str()?.parse::<libc::pid_t>().ok()) {
        let file = |name: &str| std::fs::read_to_string(format!("/proc/{number}/{name}")).unwrap_or_default();
        // Children that have ended count with the one that waited for them.
        if let Some(stat) = ProcessStat::parse(&file("stat")).filter(|stat| stat.group == group) {
            activity[0] += stat.ticks();
            activity[1] += stat.major_faults;
            activity[2] += bytes_moved(&file("io"));
        }
    }
    activity
}

/// All that /proc/PID/io counts.
fn bytes_moved(io: &str) -> u64 {
    io.lines().filter_map(|line| line.split_once(": ")?.1.parse::<u64>().ok()).fold(0, u64::wrapping_add)
}

/// One of the child's output streams.
struct OutputPipe<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
}

impl<R: Read + AsFd> OutputPipe<R> {
    fn new(pipe: Option<R>) -> Self {
        if let Some(pipe) = &pipe {
            let _ = set_status_flag(pipe, OFlags::NONBLOCK, true);
        }
        Self { pipe, bytes: Vec::new() }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).trim().to_owned()
    }

    /// Reads what is available, keeps the last `max_bytes` bytes in all, and closes itself at the end; whether something came.
    fn read(&mut self, max_bytes: usize) -> Result<bool> {
        let Some(pipe) = &mut self.pipe else { return Ok(false) };
        let mut chunk = [0; 16 * 1024];
        match pipe.read(&mut chunk) {
            Ok(0) => self.pipe = None,
            Ok(length) => {
                self.bytes.extend_from_slice(&chunk[..length]);
                let excess = self.bytes.len().saturating_sub(max_bytes);
                self.bytes.drain(..excess);
                return Ok(true);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }
}

/// Whether one of the streams that are open became readable before a time.
fn wait_readable<const N: usize>(streams: [Option<BorrowedFd<'_>>; N], deadline: u64) -> Result<bool> {
    let open: Vec<BorrowedFd<'_>> = streams.into_iter().flatten().collect();
    let remaining = Duration::from_nanos(deadline.saturating_sub(monotonic()));
    let ready = poll::wait_any_readable(&open, remaining);
    Ok(ready.map_err(|error| Error::other(format!("cannot wait for a probe: {error}")))?.contains(&true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_timed_child_starts_with_the_call() {
        let before = monotonic();
        let (mut child, start) = spawn_timed(&mut Command::new("true")).unwrap();
        assert!((before..=monotonic()).contains(&start));
        assert!(child.wait().unwrap().success());
        assert!(spawn_timed(&mut Command::new("/no/such/program")).is_err());
    }

    fn shell(script: &str) -> GuardedChild {
        GuardedChild::spawn(OsStr::new("/bin/sh"), &["-c", script], [("KELVIN_TEST", "1")]).unwrap()
    }

    #[test]
    fn output_stderr_and_status_are_returned() {
        let mut child = shell("cat; echo oops >&2; exit 3");
        child.write_stdin(b"hello");
        let ending = child.wait(WaitLimit::fixed(Duration::from_secs(5)), 1 << 20).unwrap();
        assert_eq!(ending.output, b"hello");
        assert_eq!(ending.stderr, "oops");
        assert_eq!(ending.end, ChildEnd::Exited(3));
    }

    #[test]
    fn end_of_long_stderr_is_kept() {
        let ending =
            shell("yes | head -n 10000 >&2; echo last >&2").wait(WaitLimit::fixed(Duration::from_secs(20)), 100);
        let stderr = ending.unwrap().stderr;
        assert_eq!(stderr, format!("{}last", "y\n".repeat((STDERR_BYTES - "last\n".len()) / 2)).trim());
    }

    #[test]
    fn terminated_child_ends_with_the_thread_that_started_it() {
        let script = "trap 'echo cleaned; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
        let child = std::thread::spawn(move || {
            let ended_by = EndWithParent::Terminated;
            let mut child =
                GuardedChild::spawn_ended_by(ended_by, OsStr::new("/bin/sh"), &["-c", script], [("A", "1")]).unwrap();
            // Until then it has no trap.
            assert_eq!(child.first_lines(1, Duration::from_secs(20), 100).unwrap(), ["ready"]);
            child
        });
        let ending = child.join().unwrap().wait(WaitLimit::fixed(Duration::from_secs(20)), 100).unwrap();
        assert_eq!((ending.end, &ending.output[..]), (ChildEnd::Exited(5), &b"cleaned\n"[..]));
    }

    #[test]
    fn hanging_child_group_is_killed() {
        let child = shell("sleep 1000 & echo $!; wait");
        let ending = child.wait(WaitLimit::fixed(Duration::from_secs(2)), 1 << 20).unwrap();
        assert_eq!(ending.end, ChildEnd::TimedOut);
        let grandchild: libc::pid_t = String::from_utf8(ending.output).unwrap().trim().parse().unwrap();
        for _ in 0..500 {
            let state = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
            if state.is_empty() || state.contains(") Z ") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the grandchild lives on");
    }

    #[test]
    fn first_lines_return_while_child_runs() {
        let mut child = shell("echo warm >&2; echo here; echo more; sleep 1000");
        assert_eq!(child.first_lines(1, Duration::from_secs(20), 100).unwrap(), ["here"]);
        assert_eq!(child.stderr(), "warm");
        assert!(std::path::Path::new(&format!("/proc/{}", child.id())).exists());
        drop(child);
        let mut silent = shell("echo wrong >&2");
        assert!(silent.first_lines(1, Duration::from_secs(20), 100).unwrap().is_empty());
        assert_eq!(silent.stderr(), "wrong");
    }

    /// A limit that is short for what is done, and long for this program.
    const SHORT_LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn active_child_extends_its_limit() {
        let limit = WaitLimit { initial: SHORT_LIMIT, max: Duration::from_secs(60) };
        let ending = shell("for i in 1 2 3 4 5 6; do sleep 0.4; echo; done >/dev/null; exit 4").wait(limit, 100);
        assert_eq!(ending.unwrap().end, ChildEnd::Exited(4));
        // It has done something once, when it began.
        assert_eq!(shell("sleep 1000").wait(limit, 100).unwrap().end, ChildEnd::TimedOut);
    }

    #[test]
    fn max_wait_ends_active_child() {
        let limit = WaitLimit { initial: SHORT_LIMIT, max: 3 * SHORT_LIMIT };
        let start = monotonic();
        assert_eq!(shell("while :; do :; done").wait(limit, 100).unwrap().end, ChildEnd::TimedOut);
        assert!(monotonic() - start >= limit.max.as_nanos() as u64);
    }

    #[test]
    fn activity_counts_its_group() {
        let busy = shell("while :; do :; done");
        let before = group_activity(busy.group);
        while group_activity(busy.group) == before {}
        drop(busy);
        assert_eq!(group_activity(-1), [0; 3]);
        assert_eq!(bytes_moved("rchar: 10\nwchar: 5\ncancelled_write_bytes: 0\n"), 15);
    }

    #[test]
    fn crash_names_its_signal() {
        let ending = shell("kill -SEGV $$").wait(WaitLimit::fixed(Duration::from_secs(5)), 1 << 20).unwrap();
        assert_eq!(ending.end, ChildEnd::Signalled(libc::SIGSEGV));
    }

    #[test]
    fn excess_output_kills_child() {
        let ending = shell("yes").wait(WaitLimit::fixed(Duration::from_secs(20)), 100_000).unwrap();
        assert_eq!(ending.end, ChildEnd::TooMuchOutput);
    }
}
