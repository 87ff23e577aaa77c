//! The remote shell of a transfer: a child process that starts the other end, and is its connection.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelvin_sys::lock;
use kelvin_sys::thread_spawn::{ThreadBuilder, process_error};
use kelvin_transfer::pipe_stream::PipeStream;
use kelvin_transfer::{Error, remote_shell};

use super::STDIO_OPTION;
use crate::cli::{RemoteShellArgs, ShellCommand};
use crate::cli_error::{CliError, Context};
use crate::commands::agent::LOG_FLUSH_TIMEOUT;
use crate::commands::agent::log::Log;

/// How long a child may take to end once its pipes are closed; and its last messages to come, of which some process that it left behind
/// may hold the other end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(500);
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What a shell's exit status is where it finds no such program (POSIX).
const NOT_FOUND_STATUS: i32 = 127;
/// Begins what kelvin writes to standard error.
const OWN_PREFIX: &str = "kelvin: ";
/// Bytes of a message that are kept.
const MAX_MESSAGE_BYTES: usize = 300;

/// A child that has started the other end, or tries to.
pub struct RemoteShell {
    child: Child,
    messages: Arc<RemoteMessages>,
    messages_end: Receiver<()>,
    /// The command, the host and the program there, for errors.
    command: String,
    host: String,
    remote_program: String,
}

impl RemoteShell {
    /// Starts kelvin with these arguments at a host, and waits until it is there: a login takes as long as it takes.
    ///
    /// # Errors
    /// No such command; a host that refuses; no kelvin there, or one of another version.
    pub fn start(
        args: &RemoteShellArgs,
        host: &str,
        remote_arguments: &[OsString],
    ) -> Result<(Self, PipeStream), CliError> {
        let Some(ShellCommand { program, arguments }) = &args.rsh else { bail!("-e: name a command, such as ssh") };
        let remote_program = &args.remote_program;
        let mut command = Command::new(program);
        command.args(arguments).arg(host).arg(&remote_program.program).args(&remote_program.arguments);
        command.args(remote_arguments.iter().map(quote).collect::<Result<Vec<_>, _>>()?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let option = format!("-e {program}");
        let mut child = command.spawn().map_err(process_error).context(&option)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = pipes else { bail!("{option}: it has no pipes") };
        let messages = Arc::new(RemoteMessages::new(host)?);
        let messages_end = messages.read_in_background(errors)?;
        let (command, host) = (program.clone(), host.to_owned());
        let remote_program = remote_program.program.clone();
        let shell = Self { child, messages, messages_end, command, host, remote_program };
        let stream = PipeStream::new(output.into(), input.into()).context(&option)?;
        shell.await_start(stream)
    }

    fn await_start(mut self, mut stream: PipeStream) -> Result<(Self, PipeStream), CliError> {
        match remote_shell::await_start(&mut stream) {
            Ok(shell_output) => {
                String::from_utf8_lossy(&shell_output).lines().for_each(|line| self.messages.add(line.to_owned()));
                self.messages.release();
                Ok((self, stream))
            }
            Err(why) => {
                drop(stream);
                let status = self.wait();
                let message = self.messages.take_last().unwrap_or_default();
                self.messages.log.close(LOG_FLUSH_TIMEOUT);
                Err(self.start_error(&why, status, &message))
            }
        }
    }

    /// Why the other end has not started, in one line with the last that its shell or kelvin there said.
    fn start_error(&self, why: &Error, status: Option<ExitStatus>, message: &str) -> CliError {
        let Self { command, host, remote_program, .. } = self;
        let reason = if message.is_empty() { String::new() } else { format!(": {message}") };
        match (why, status, message.strip_prefix(OWN_PREFIX)) {
            (Error::Closed, _, Some(message)) if message.contains(STDIO_OPTION) => {
                CliError::new(host, format_args!("kelvin there is of a version before {STDIO_OPTION}: {message}"))
            }
            (Error::Closed, _, Some(message)) => CliError::new(host, message),
            (Error::Closed, Some(status), None) if status.code() == Some(NOT_FOUND_STATUS) => {
                let advice = "install kelvin there, or name it by --remote-program";
                CliError::new(host, format_args!("there is no program {remote_program}{reason}; {advice}"))
            }
            (Error::Closed, Some(status), None) => {
                CliError::new(host, format_args!("{command} ended before kelvin was there ({status}){reason}"))
            }
            _ => CliError::new(host, why),
        }
    }

    /// Waits until the child has ended, whose pipes are closed, and its last messages were printed; returns whether the other end has
    /// done all. One that does not end is killed.
    pub fn finish(mut self) -> bool {
        let status = self.wait();
        self.messages.log.close(LOG_FLUSH_TIMEOUT);
        status.is_some_and(|status| status.success())
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        let start = Instant::now();
        let mut status = None;
        while status.is_none() && start.elapsed() < END_TIMEOUT {
            status = self.child.try_wait().ok()?;
            if status.is_none() {
                std::thread::sleep(END_POLL_INTERVAL);
            }
        }
        if status.is_none() {
            let _ = self.child.kill();
            status = self.child.wait().ok();
        }
        let _ = self.messages_end.recv_timeout(MESSAGE_TIMEOUT);
        status
    }
}

/// One word of a command line that a shell at the other end takes apart once more.
fn quote(word: &OsString) -> Result<OsString, CliError> {
    let quoted = shlex::bytes::try_quote(word.as_bytes()).context(word.display())?;
    Ok(OsString::from_vec(quoted.into_owned()))
}

/// What the shell and the other end write to standard error: few lines of it are printed, and nothing that a terminal would obey.
///
/// Until the other end has started the last line is held back: it says why, if it does not.
struct RemoteMessages {
    log: Log,
    host: String,
    held: Mutex<HeldMessage>,
}

#[derive(Default)]
struct HeldMessage {
    last: Option<String>,
    has_started: bool,
}

impl RemoteMessages {
    fn new(host: &str) -> Result<Self, CliError> {
        let log = Log::with_writer(std::io::stderr())?;
        Ok(Self { log, host: host.to_owned(), held: Mutex::default() })
    }

    /// Reads what comes until its end, however much it is. The result ends then.
    fn read_in_background(self: &Arc<Self>, mut errors: ChildStderr) -> Result<Receiver<()>, CliError> {
        let (end_sender, end_receiver) = channel();
        let messages = Arc::clone(self);
        ThreadBuilder::named("remote stderr").start(move || {
            let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = errors.read(&mut buffer) {
                for &byte in &buffer[..count] {
                    match byte {
                        b'\n' => messages.add(String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned()),
                        byte if line.len() < MAX_MESSAGE_BYTES => line.push(byte),
                        _ => {}
                    }
                }
            }
            messages.add(String::from_utf8_lossy(&line).into_owned());
            drop(end_sender);
        })?;
        Ok(end_receiver)
    }

    fn add(&self, line: String) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let mut held = lock(&self.held);
        let printed = if held.has_started { Some(line.to_owned()) } else { held.last.replace(line.to_owned()) };
        printed.into_iter().for_each(|line| self.print(&line));
    }

    fn print(&self, line: &str) {
        self.log.note(format_args!("{}: {}", self.host, line.strip_prefix(OWN_PREFIX).unwrap_or(line)));
    }

    /// The other end has started: nothing is held back any more.
    fn release(&self) {
        let mut held = lock(&self.held);
        held.has_started = true;
        held.last.take().into_iter().for_each(|line| self.print(&line));
    }

    /// The line that was held back.
    fn take_last(&self) -> Option<String> {
        lock(&self.held).last.take()
    }
}
