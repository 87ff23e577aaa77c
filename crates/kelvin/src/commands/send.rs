//! `kelvin send`: files to a `kelvin receive`.

mod chosen_files;
mod fetch;
mod remote_shell;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use kelvin_core::text::escape_invisible;
use kelvin_sys::kmod::KmodDevice;
use kelvin_transfer::datapath::SendSetup;
use kelvin_transfer::file_name::FileName;
use kelvin_transfer::message::{ConnectionLifetime, SessionSettings};
use kelvin_transfer::pipe_stream::PipeStream;
use kelvin_transfer::remote_shell::{announce_start, connect_sender};
use kelvin_transfer::secure_channel::TransferStream;
use kelvin_transfer::send::{SendResult, Sender, SenderOptions, TuningWindow, UnsentFile};
use kelvin_transfer::source::{AttributePolicy, PreserveOptions, SourceList, skipped_text};
use kelvin_transfer::summary::TransferSummary;
use kelvin_transfer::wire::address::resolve;
use kelvin_transfer::{Error, device};
use serde::Serialize;

use self::chosen_files::{listed_paths, path_filter};
use self::remote_shell::RemoteShell;
use crate::answer::AnswerOutlet;
use crate::cli::{AutoOr, ReceiverTarget, RemotePath, SendArgs, SendRoute};
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output;
use crate::peer_agent::read_secret;
use crate::progress::StatusLine;

/// Sends the files, and prints what was moved. Nothing is sent unless all that were named can be read.
pub fn send(args: &SendArgs) -> CmdResult {
    match args.route()? {
        SendRoute::Network(files, target) => send_to_host(args, &files, &target),
        SendRoute::ToRemote(files, target) => send_to_remote(args, &files, &target),
        SendRoute::FromRemote(sources, directory) => fetch::fetch(args, &sources, directory),
        SendRoute::StandardOutput(files) => send_to_standard_output(args, &files),
    }
}

fn send_to_host(args: &SendArgs, files: &[PathBuf], target: &ReceiverTarget) -> CmdResult {
    let ReceiverTarget { host, directory } = target;
    let outlet = AnswerOutlet::find(&args.answer)?;
    let secret = read_secret(args.token_file.as_deref())?;
    let method = args.setup()?;
    let collection = collect_files(args, files)?;
    let addresses = resolve(host).context(host)?;
    kelvin_sys::stop_signals::install_handlers()?;
    let options = send_settings(args, method, &collection);
    let outcome = if args.device {
        send_all(device::connect(&addresses, &secret, (options, directory)), host, collection)?
    } else {
        send_all(Sender::connect_into(&addresses, &secret, (options, directory)), host, collection)?
    };
    report_outcome(args, outlet, host, outcome)
}

/// Has a remote shell start the receiver, and sends to it.
fn send_to_remote(args: &SendArgs, files: &[PathBuf], target: &RemotePath) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let collection = collect_files(args, files)?;
    kelvin_sys::stop_signals::install_handlers()?;
    let mut receiver: Vec<OsString> = ["receive", "--stdio"].map(OsString::from).to_vec();
    receiver.extend(args.remote_shell.overwrite.then(|| "--overwrite".into()));
    receiver.extend(args.delete.then(|| "--delete".into()));
    receiver.extend(args.acls.then(|| "--acls".into()));
    receiver.extend(["--".into(), target.path.clone()]);
    let options = send_settings(args, None, &collection);
    let (shell, stream) = RemoteShell::start(&args.remote_shell, &target.host, &receiver)?;
    let outcome = send_all(connect_sender(stream, options), &target.host, collection);
    shell.finish();
    report_outcome(args, outlet, &target.host, outcome?)
}

/// Sends to the receiver that has started this end. It prints what was moved; this end only reports files that it could not read.
fn send_to_standard_output(args: &SendArgs, files: &[PathBuf]) -> CmdResult {
    let collection = collect_files(args, files)?;
    kelvin_sys::stop_signals::install_handlers()?;
    let mut stream = PipeStream::standard().context(STDIO_OPTION)?;
    announce_start(&mut stream)?;
    let options = send_settings(args, None, &collection);
    let result = connect_sender(stream, options)?.send(collection, &|_, _| {})?;
    // What the receiver would not take, it prints.
    let unreadable = result.unsent.iter().filter(|file| !matches!(file.why, Error::Refused(_)));
    unreadable.for_each(report_unsent);
    if let Some(omitted) = skipped_text(&result.omitted) {
        notice!("{omitted}");
    }
    if let Some(why) = &result.deletion.refused {
        CliError::new("--delete", why).report();
    }
    Ok(result.unsent.is_empty() && result.deletion.refused.is_none())
}

/// What was deleted: each path in a dry run, else how many.
fn write_deleted(out: &mut dyn Write, dry_run: bool, deleted: &[PathBuf]) -> std::io::Result<()> {
    if dry_run {
        return deleted
            .iter()
            .try_for_each(|path| writeln!(out, "would delete {}", escape_invisible(&path.to_string_lossy())));
    }
    if deleted.is_empty() {
        Ok(())
    } else {
        writeln!(out, "deleted: {}", kelvin_core::units::count(deleted.len() as u64))
    }
}

/// By what one end has the other one use its standard input and output.
const STDIO_OPTION: &str = "--stdio";

fn report_outcome(args: &SendArgs, outlet: AnswerOutlet, host: &str, outcome: Result<SendResult, Error>) -> CmdResult {
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
    let SendArgs {
        no_verify,
        sync,
        update,
        dry_run,
        delete,
        max_delete,
        acls,
        ignore_existing,
        limit,
        connection,
        compress,
        ..
    } = *args;
    let remote_shell = args.remote_shell.is_used();
    // Where there is room for it however much it is, not all must be found before the first is sent.
    let (bytes, at_most) = match collection.is_complete() {
        true => (collection.stored_bytes, None),
        false => (None, collection.max_stored_bytes),
    };
    let settings = SessionSettings {
        // The shell encrypts them.
        plain: args.plain || remote_shell,
        remote_shell,
        compressed: compress.is_some(),
        verify: !no_verify,
        sync,
        update,
        ignore_existing,
        dry_run,
        delete,
        acls,
        bytes,
        at_most,
        streams: args.streams.announced_streams(),
        connection,
    };
    // What goes by a method that was asked for goes over one connection, as does what goes through a shell.
    let is_tuned = args.streams == AutoOr::Auto && method.is_none() && !remote_shell;
    let stream_tuning = is_tuned.then_some(TuningWindow::DEFAULT);
    let (acknowledge, lists_moved, compression) = (args.ack, args.verbose > 0, compress);
    SenderOptions { settings, acknowledge, limit, max_delete, lists_moved, compression, method, stream_tuning }
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
    let filter = path_filter(args)?;
    if let Some(list) = &args.files_from {
        let [directory] = files else { bail!("--files-from: name one directory, at which its paths start") };
        let paths = listed_paths(list, args.from0)?;
        return Ok(SourceList::from_paths(directory, &paths, (preserve_options(args), filter))?);
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
    let mut sources = SourceList::begin(files, preserve_options(args), filter)?;
    let is_default = args.streams.announced_streams() == 1 && args.connection == ConnectionLifetime::Persistent;
    let can_list_later = is_default
        && !args.update
        && !args.ignore_existing
        && !args.dry_run
        && !args.device
        && sources.max_stored_bytes.is_some();
    sources.find_more(if can_list_later { MAX_FILES_LISTED_FIRST } else { usize::MAX })?;
    Ok(sources)
}

/// What is sent of each file.
fn preserve_options(args: &SendArgs) -> PreserveOptions {
    let attributes = match (args.xattrs, args.dry_run) {
        (true, _) => AttributePolicy::Preserve,
        (false, true) => AttributePolicy::CountWhenFound,
        (false, false) => AttributePolicy::CountWhenSent,
    };
    let SendArgs { recursive, links, copy_links, hard_links, owners, acls, .. } = *args;
    PreserveOptions { recursive, links, copy_links, hard_links, owners, attributes, acls }
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
    /// What was moved, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sent: Vec<String>,
    /// What was deleted at the receiver, or in a dry run would be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deleted: Vec<String>,
    /// Why nothing was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_deleted: Option<&'a str>,
    /// Files that state no bytes and have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizeless_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'static str>,
}

/// An error of a file names it.
fn report_unsent(UnsentFile { path, why }: &UnsentFile) {
    let fault = if let Error::File(why) = why { CliError::msg(why) } else { CliError::new(path.display(), why) };
    fault.report();
}

fn print_summary(args: &SendArgs, outlet: AnswerOutlet, result: &SendResult) -> CmdResult {
    let SendResult { summary, moved_paths, unsent, unchanged, planned, sizeless_files, omitted, deletion } = result;
    let omitted = skipped_text(omitted);
    let device = args.device.then_some(KmodDevice::Sender);
    unsent.iter().for_each(report_unsent);
    if let Some(why) = &deletion.refused {
        CliError::new("--delete", why).report();
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
            sent: moved_paths.iter().map(|path| path.display().to_string()).collect(),
            deleted: deletion.deleted.iter().map(|path| path.display().to_string()).collect(),
            not_deleted: deletion.refused.as_deref(),
            sizeless_files: (*sizeless_files > 0).then_some(*sizeless_files),
            omitted,
            device: device.map(KmodDevice::path),
        };
        outlet.write_json(&summary)?;
    } else if !args.quiet {
        let columns = outlet.columns();
        outlet.write_lines(|out| {
            for path in planned {
                writeln!(out, "would send {}", escape_invisible(&path.to_string_lossy()))?;
            }
            for path in moved_paths {
                writeln!(out, "sent {}", escape_invisible(&path.to_string_lossy()))?;
            }
            write_deleted(out, args.dry_run, &deletion.deleted)?;
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
            let text = format!("{summary}{}", super::kernel_socket_note(device));
            if args.dry_run { Ok(()) } else { output::write_wrapped(out, columns, "", &text) }
        })?;
    }
    Ok(unsent.is_empty() && deletion.refused.is_none())
}
