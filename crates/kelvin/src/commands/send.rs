//! `kelvin send`: files to a `kelvin receive`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use kelvin_core::text::escape_invisible;
use kelvin_sys::kmod::KmodDevice;
use kelvin_transfer::datapath::SendSetup;
use kelvin_transfer::file_name::FileName;
use kelvin_transfer::message::{ConnectionLifetime, SessionSettings};
use kelvin_transfer::secure_channel::TransferStream;
use kelvin_transfer::send::{SendResult, Sender, SenderOptions, TuningWindow, UnsentFile};
use kelvin_transfer::source::{AttributePolicy, PreserveOptions, SourceList, skipped_text};
use kelvin_transfer::summary::TransferSummary;
use kelvin_transfer::wire::address::resolve;
use kelvin_transfer::{Error, device};
use serde::Serialize;

use crate::answer::AnswerOutlet;
use crate::cli::{AutoOr, SendArgs};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output;
use crate::peer_agent::read_secret;
use crate::progress::StatusLine;

/// Sends the files, and prints what was moved. Nothing is sent unless all that were named can be read.
pub fn send(args: &SendArgs) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let secret = read_secret(args.token_file.as_deref())?;
    let (files, host) = args.operands()?;
    let method = args.setup()?;
    let collection = collect_files(args, &files)?;
    let addresses = resolve(host).context(host)?;
    kelvin_sys::stop_signals::install_handlers()?;
    let options = send_settings(args, method, &collection);
    let outcome = if args.device {
        send_all(device::connect(&addresses, &secret, options), host, collection)?
    } else {
        send_all(Sender::connect(&addresses, &secret, options), host, collection)?
    };
    match outcome {
        Ok(result) => print_summary(args, outlet, &result),
        Err(error @ Error::RefusedAll(_)) => Err(CliError::new(host, error)),
        Err(error) => {
            CliError::msg(error).report();
            Ok(false)
        }
    }
}

/// Sends all by a sender that has connected.
fn send_all<S: TransferStream>(
    connection: Result<Sender<S>, Error>,
    host: &str,
    collection: SourceList,
) -> Result<Result<SendResult, Error>, CliError> {
    let sender = connection.map_err(|error| match error {
        Error::Device(reason) => CliError::new("--device", reason),
        error => CliError::new(host, error),
    })?;
    let progress = StatusLine::after_delay();
    Ok(sender.send(collection, &|bytes, total| progress.show_bytes(bytes, total)))
}

fn send_settings(args: &SendArgs, method: Option<SendSetup>, collection: &SourceList) -> SenderOptions {
    let SendArgs { plain, no_verify, sync, update, dry_run, limit, connection, .. } = *args;
    // Where there is room for it however much it is, not all must be found before the first is sent.
    let (bytes, at_most) = match collection.is_complete() {
        true => (collection.stored_bytes, None),
        false => (None, collection.max_stored_bytes),
    };
    let (verify, streams) = (!no_verify, args.streams.announced_streams());
    // What goes by a method that was asked for goes over one connection.
    let stream_tuning = (args.streams == AutoOr::Auto && method.is_none()).then_some(TuningWindow::DEFAULT);
    let settings = SessionSettings { plain, verify, sync, update, dry_run, bytes, at_most, streams, connection };
    SenderOptions { settings, acknowledge: args.ack, limit, method, stream_tuning }
}

/// Files that are found before the receiver is asked for anything: so few are found at once.
const MAX_FILES_LISTED_FIRST: usize = 256;

/// All that is named, each with a name of its own; what is in directories only as far as it must be known before it is sent.
fn collect_files(args: &SendArgs, files: &[PathBuf]) -> Result<SourceList, CliError> {
    if files == [PathBuf::from("-")] {
        kelvin_sys::standard_streams::check_input().context(output::STDIN_READ_FAILED)?;
        let name = args.name.as_deref().unwrap_or(OsStr::new("stdin"));
        return SourceList::from_stdin(name).context("--name");
    }
    if args.name.is_some() {
        bail!("--name: it names what comes from standard input: files keep their names");
    }
    let mut paths = BTreeMap::new();
    for path in files {
        if path == Path::new("-") {
            bail!("-: standard input is sent alone, without other files");
        }
        // What has no name is refused below.
        let Ok(name) = FileName::from_path(path) else { continue };
        if let Some(previous) = paths.insert(name, path) {
            let (first, second) = (previous.display(), path.display());
            bail!("{first} and {second} would arrive under one name: send them apart");
        }
    }
    let attributes = match (args.xattrs, args.dry_run) {
        (true, _) => AttributePolicy::Preserve,
        (false, true) => AttributePolicy::CountWhenFound,
        (false, false) => AttributePolicy::CountWhenSent,
    };
    let options = PreserveOptions { recursive: args.recursive, links: args.links, owners: args.owners, attributes };
    let mut sources = SourceList::begin(files, options)?;
    let is_default = args.streams.announced_streams() == 1 && args.connection == ConnectionLifetime::Persistent;
    let can_list_later =
        is_default && !args.update && !args.dry_run && !args.device && sources.max_stored_bytes.is_some();
    sources.find_more(if can_list_later { MAX_FILES_LISTED_FIRST } else { usize::MAX })?;
    Ok(sources)
}

/// What was moved and what was not, as data.
#[derive(Serialize)]
struct SendSummary<'a> {
    #[serde(flatten)]
    moved: &'a TransferSummary,
    unchanged: u64,
    unsent: Vec<BTreeMap<&'static str, String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    planned: Vec<String>,
    /// Files that state no bytes and have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizeless_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'static str>,
}

fn print_summary(args: &SendArgs, outlet: AnswerOutlet, result: &SendResult) -> CmdResult {
    let SendResult { summary, unsent, unchanged, planned, sizeless_files, omitted } = result;
    let omitted = skipped_text(omitted);
    let device = args.device.then_some(KmodDevice::Sender);
    for UnsentFile { path, why } in unsent {
        // An error of a file names it.
        let fault = if let Error::File(why) = why { CliError::msg(why) } else { CliError::new(path.display(), why) };
        fault.report();
    }
    if outlet.is_json {
        let entry = |UnsentFile { path, why }: &UnsentFile| {
            BTreeMap::from([("file", path.display().to_string()), ("why", why.to_string())])
        };
        let summary = SendSummary {
            moved: summary,
            unchanged: *unchanged,
            unsent: unsent.iter().map(entry).collect(),
            planned: planned.iter().map(|path| path.display().to_string()).collect(),
            sizeless_files: (*sizeless_files > 0).then_some(*sizeless_files),
            omitted,
            device: device.map(KmodDevice::path),
        };
        outlet.write_json(&summary)?;
    } else {
        outlet.write_lines(|out| {
            for path in planned {
                writeln!(out, "would send {}", escape_invisible(&path.to_string_lossy()))?;
            }
            if *unchanged > 0 {
                writeln!(out, "unchanged: {}", kelvin_core::units::files(*unchanged))?;
            }
            if let Some(omitted) = &omitted {
                writeln!(out, "{omitted}")?;
            }
            if *sizeless_files > 0 {
                let files = kelvin_core::units::files(*sizeless_files);
                writeln!(out, "read until their end, since they state a size of 0 bytes: {files}")?;
            }
            if args.dry_run { Ok(()) } else { writeln!(out, "{summary}{}", super::kernel_socket_note(device)) }
        })?;
    }
    Ok(unsent.is_empty())
}
