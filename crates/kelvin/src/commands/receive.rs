//! `kelvin receive`: files from `kelvin send` into a directory.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_sys::kmod::KmodDevice;
use kelvin_transfer::message::SessionSettings;
use kelvin_transfer::offer_policy::Destination;
use kelvin_transfer::open_directory::OpenDirectory;
use kelvin_transfer::pipe_stream::PipeStream;
use kelvin_transfer::receive::{Receiver, ReceiverOptions};
use kelvin_transfer::remote_shell::{announce_start, open_directory};
use kelvin_transfer::session::{SessionEvent, standard_output};
use kelvin_transfer::summary::TransferSummary;
use kelvin_transfer::wire::address::DisplayAddr;
use kelvin_transfer::{Error, device};
use serde::Serialize;

use super::agent::LOG_FLUSH_TIMEOUT;
use super::agent::log::{Log, LogSource};
use crate::cli::ReceiveArgs;
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output::{self, ERASE_LINE};
use crate::peer_agent::read_secret;
use crate::progress::byte_progress_text;

/// Receives until asked to stop, or from one sender. Prints its address and then what each sender moved on standard output, and
/// logs to standard error.
pub fn receive(args: &ReceiveArgs) -> CmdResult {
    if args.stdio {
        return receive_from_standard_input(args);
    }
    let secret = read_secret(args.token_file.as_deref())?;
    let method = args.setup()?;
    let destination = destination(args)?;
    let is_output = matches!(destination, Destination::Output(_));
    kelvin_sys::stop_signals::install_handlers()?;
    // With fewer descriptors it takes fewer connections.
    let _ = kelvin_sys::process::raise_open_file_limit();
    let log = Log::with_writer(std::io::stderr())?;
    let device = args.device.then_some(KmodDevice::Receiver);
    let (shows_progress, failed) = (output::shows_progress(), AtomicBool::default());
    let reporter = Arc::new(EventReporter { log, json: args.json, is_output, device, shows_progress, failed });
    let event_reporter = Arc::clone(&reporter);
    let report = Box::new(move |from: SocketAddr, event: SessionEvent| event_reporter.report(from, &event));
    let once = args.once || is_output;
    let options = ReceiverOptions { leave: args.leave(), once, method, min_progress: args.min_progress };
    let is_over = || kelvin_sys::stop_signals::stop_signal().is_some();
    let result = if args.device {
        let receiver = device::DeviceReceiver::listen(args.listen, destination, secret, options, report);
        let receiver = receiver.map_err(|error| listen_error(args, error))?;
        reporter.announce(receiver.address, args)?;
        receiver.serve(is_over)
    } else {
        let receiver = Receiver::listen(args.listen, destination, secret, options, report);
        let receiver = receiver.map_err(|error| listen_error(args, error))?;
        reporter.announce(receiver.address()?, args)?;
        receiver.serve(is_over)
    };
    reporter.log.close(LOG_FLUSH_TIMEOUT);
    result?;
    Ok(!(once && reporter.failed.load(Ordering::Relaxed)))
}

/// Receives from the sender that has started this end. It prints what was moved, and which files this end would not take.
fn receive_from_standard_input(args: &ReceiveArgs) -> CmdResult {
    const OPTION: &str = "--stdio";
    let Some(directory) = args.dir.as_deref().filter(|directory| *directory != Path::new("-")) else {
        bail!("{OPTION}: name a directory: standard output is the way to the sender");
    };
    if std::io::stdin().is_terminal() {
        bail!("{OPTION}: standard input is a terminal: kelvin send -e starts it with a pipe");
    }
    kelvin_sys::stop_signals::install_handlers()?;
    let mut stream = PipeStream::standard().context(OPTION)?;
    announce_start(&mut stream)?;
    let options =
        ReceiverOptions { leave: args.leave(), min_progress: args.min_progress, ..ReceiverOptions::default() };
    let open = |settings: &SessionSettings| open_directory(directory, settings);
    match kelvin_transfer::remote_shell::receive(stream, options, open, &|_| {}) {
        Ok(summary) => Ok(summary.sent.failed == 0),
        // The sender has learned it.
        Err(Error::File(_) | Error::DeletionNotAllowed | Error::AclsNotAllowed | Error::NoSpace { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn listen_error(args: &ReceiveArgs, error: Error) -> CliError {
    match error {
        Error::Call { source, .. } => CliError::new(format!("--listen {}", DisplayAddr(args.listen)), source),
        Error::Device(reason) => CliError::new("--device", reason),
        error => CliError::new("--listen", error),
    }
}

/// Where files go.
fn destination(args: &ReceiveArgs) -> Result<Destination, CliError> {
    match args.dir.as_deref() {
        None => Ok(Destination::Nothing),
        Some(output) if output == Path::new("-") => {
            let output = standard_output().context(output::STDOUT_WRITE_FAILED)?;
            Ok(Destination::Output(output))
        }
        Some(directory) => Ok(Destination::Directory(OpenDirectory::open_root(directory)?)),
    }
}

/// What a sender moved, as data.
#[derive(Serialize)]
struct ReceiveSummary<'a> {
    #[serde(flatten)]
    moved: &'a TransferSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'static str>,
}

/// Reports the events of sessions.
struct EventReporter {
    log: Log,
    json: bool,
    /// Whether standard output is what arrives, and all else goes to the log.
    is_output: bool,
    /// The device that the socket belongs to, if it is in the kernel.
    device: Option<KmodDevice>,
    /// Whether somebody reads how far a sender is.
    shows_progress: bool,
    /// Whether a file or a sender failed.
    failed: AtomicBool,
}

impl EventReporter {
    fn announce(&self, address: SocketAddr, args: &ReceiveArgs) -> Result<(), CliError> {
        let address_text = DisplayAddr(address).to_string();
        if self.is_output {
            self.log.note(&address_text);
        } else if self.json {
            output::print_json(&std::collections::BTreeMap::from([("listening", &address_text)]))?;
        } else {
            output::print(|out| writeln!(out, "{address_text}"))?;
        }
        let sender_kind =
            if args.token_file.is_some() { "senders with the secret" } else { "any process on this host" };
        let end_condition = if args.once || self.is_output { "one of them is served" } else { "Ctrl-C" };
        self.log.note(format_args!("receiving from {sender_kind} until {end_condition}"));
        Ok(())
    }

    fn report(&self, from: SocketAddr, event: &SessionEvent) {
        let (source, description) = match event {
            SessionEvent::Authenticated => (LogSource::Client, "connected".to_owned()),
            SessionEvent::FileFailed(_, error @ Error::File(_)) => (LogSource::Client, error.to_string()),
            SessionEvent::FileFailed(path, error) => (LogSource::Client, format!("{}: {error}", path.display())),
            SessionEvent::Deleted(path) => (LogSource::Client, format!("deleted {}", path.display())),
            SessionEvent::PartKept(path) => {
                (LogSource::Client, format!("{}: a part is kept, to be resumed", path.display()))
            }
            SessionEvent::Finished(summary) => return self.report_summary(from, summary),
            SessionEvent::Progress { bytes, total, elapsed } if self.shows_progress => {
                let progress = byte_progress_text(*bytes, *total, *elapsed);
                return self.log.write_transient(&format!("{}: {progress}", DisplayAddr(from)));
            }
            SessionEvent::Planned(_) | SessionEvent::FileStored(_) | SessionEvent::Progress { .. } => return,
            SessionEvent::Fault(error) => (LogSource::Client, error.to_string()),
            SessionEvent::Rejected(error) => (LogSource::Unauthenticated, error.to_string()),
        };
        match event {
            // One that found no place is not the one that is served.
            SessionEvent::Fault(Error::ServerFull(_)) => {}
            SessionEvent::FileFailed(..) | SessionEvent::Fault(_) => self.failed.store(true, Ordering::Relaxed),
            _ => {}
        }
        self.log.write_line(source, &format!("{}: {description}", DisplayAddr(from)));
    }

    fn report_summary(&self, from: SocketAddr, summary: &TransferSummary) {
        if summary.sent.failed > 0 {
            self.failed.store(true, Ordering::Relaxed);
        }
        if self.shows_progress && !self.is_output && output::is_terminal() {
            // A line of progress on the same terminal is not to stand before it.
            let _ = output::print_raw(|out| out.write_all(ERASE_LINE.as_bytes()));
        }
        let text = format!("{summary}{}", super::kernel_socket_note(self.device));
        let result = if self.is_output {
            self.log.note(text);
            Ok(())
        } else if self.json {
            output::print_json(&ReceiveSummary { moved: summary, device: self.device.map(KmodDevice::path) })
        } else {
            output::print(|out| output::write_wrapped(out, output::line_columns(), "", &text))
        };
        if let Err(fault) = result {
            self.log.note(format_args!("{}: {fault}", DisplayAddr(from)));
        }
    }
}
