//! `kelvin send -e` from a remote host: the shell there starts the sender, and this end receives.

use kelvin_core::IndirectSort;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kelvin_core::text::escape_invisible;
use kelvin_transfer::Error;
use kelvin_transfer::compression::CompressionLevel;
use kelvin_transfer::message::SessionSettings;
use kelvin_transfer::offer_policy::SenderLeave;
use kelvin_transfer::receive::ReceiverOptions;
use kelvin_transfer::remote_shell::{open_directory, receive};
use kelvin_transfer::session::SessionEvent;
use kelvin_transfer::summary::TransferSummary;
use serde::Serialize;

use super::chosen_files::filter_arguments;
use super::remote_shell::RemoteShell;
use super::write_deleted;
use crate::answer::AnswerOutlet;
use crate::cli::{RemotePath, RemoteShellArgs, SendArgs};
use crate::cli_error::{CliError, CmdResult};
use crate::output;
use crate::progress::{StatusLine, byte_progress_text};

/// What was moved, and in a dry run what would be, as data.
#[derive(Serialize)]
struct FetchSummary<'a> {
    #[serde(flatten)]
    moved: &'a TransferSummary,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    planned: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    received: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deleted: Vec<String>,
}

/// What happens at this end.
#[derive(Default)]
struct FetchedFiles {
    planned: Vec<PathBuf>,
    /// All that arrived, if that is asked for.
    stored: Vec<PathBuf>,
    deleted: Vec<PathBuf>,
    failed: u64,
}

/// Fetches files of one host into a directory here, and prints what was moved.
pub fn fetch(args: &SendArgs, sources: &[RemotePath], directory: &Path) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    if args.name.is_some() {
        bail!("--name: it names what comes from standard input: files keep their names");
    }
    if args.files_from.is_some() {
        bail!("--files-from: the list is for files here: name those of a host as HOST:FILE");
    }
    let Some(RemotePath { host, .. }) = sources.first() else { bail!("-e: name a file of a host, HOST:FILE") };
    kelvin_sys::stop_signals::install_handlers()?;
    let (shell, stream) = RemoteShell::start(&args.remote_shell, host, &sender_arguments(args, sources)?)?;
    let SendArgs { delete, acls, remote_shell: RemoteShellArgs { overwrite, .. }, .. } = *args;
    let leave = SenderLeave { overwrite, delete, acls };
    let options = ReceiverOptions { leave, ..ReceiverOptions::default() };
    let (progress, fetched) = (StatusLine::after_delay(), RefCell::new(FetchedFiles::default()));
    let on_event = |event| match event {
        SessionEvent::Planned(path) => fetched.borrow_mut().planned.push(path),
        SessionEvent::FileStored(path) if args.verbose > 0 => fetched.borrow_mut().stored.push(path),
        SessionEvent::Deleted(path) => fetched.borrow_mut().deleted.push(path),
        SessionEvent::Progress { bytes, total, elapsed } => {
            progress.show_at_intervals(|_| byte_progress_text(bytes, total, elapsed));
        }
        // The other end prints what it could not send.
        SessionEvent::FileFailed(_, Error::Refused(_)) => fetched.borrow_mut().failed += 1,
        SessionEvent::FileFailed(path, why) => {
            fetched.borrow_mut().failed += 1;
            let fault =
                if let Error::File(why) = why { CliError::msg(why) } else { CliError::new(path.display(), why) };
            fault.report();
        }
        _ => {}
    };
    let outcome = receive(stream, options, |settings: &SessionSettings| open_directory(directory, settings), &on_event);
    drop(progress);
    let has_sent = shell.finish();
    let summary = match outcome {
        Ok(summary) => summary,
        Err(error @ Error::File(_)) => return Err(error.into()),
        Err(error) => {
            CliError::new(host, error).report();
            return Ok(false);
        }
    };
    let mut fetched = fetched.into_inner();
    fetched.deleted.indirect_sort();
    print_summary(args, outlet, &summary, &fetched)?;
    Ok(has_sent && summary.sent.failed == 0 && fetched.failed == 0)
}

/// The command line of the other end: what this one was asked for, as far as a sender does it.
fn sender_arguments(args: &SendArgs, sources: &[RemotePath]) -> Result<Vec<OsString>, CliError> {
    let SendArgs { recursive, links, copy_links, hard_links, owners, xattrs, acls, update, ignore_existing, .. } =
        *args;
    let SendArgs { sync, no_verify, dry_run, ack, delete, .. } = *args;
    let flags = [
        ("--stdio", true),
        ("--recursive", recursive),
        ("--links", links),
        ("--hard-links", hard_links),
        ("--owners", owners),
        ("--xattrs", xattrs),
        ("--acls", acls),
        ("--copy-links", copy_links),
        ("--ignore-existing", ignore_existing),
        ("--update", update),
        ("--sync", sync),
        ("--no-verify", no_verify),
        ("--dry-run", dry_run),
        ("--ack=per-file", ack),
        ("--delete", delete),
    ];
    let flags = flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| OsString::from(flag));
    let SendArgs { limit, max_delete, max_size, min_size, .. } = *args;
    let numbers =
        [("--limit", limit), ("--max-delete", max_delete), ("--max-size", max_size), ("--min-size", min_size)];
    let numbers = numbers.into_iter().filter_map(|(flag, number)| Some(format!("{flag}={}", number?).into()));
    let compression = args.compress.map(|level| match level {
        CompressionLevel::Auto => OsString::from("--compress"),
        CompressionLevel::Fixed(level) => format!("--compress=zstd:{level}").into(),
    });
    let paths = sources.iter().map(|source| source.path.clone());
    let filter = filter_arguments(args)?;
    let arguments = [OsString::from("send")].into_iter().chain(flags).chain(numbers).chain(compression).chain(filter);
    Ok(arguments.chain(["--".into()]).chain(paths).collect())
}

fn print_summary(
    args: &SendArgs,
    outlet: AnswerOutlet,
    summary: &TransferSummary,
    fetched: &FetchedFiles,
) -> Result<(), CliError> {
    if outlet.is_json {
        let texts = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        let (planned, received, deleted) = (texts(&fetched.planned), texts(&fetched.stored), texts(&fetched.deleted));
        return outlet.write_json(&FetchSummary { moved: summary, planned, received, deleted });
    }
    if args.quiet {
        return Ok(());
    }
    let columns = outlet.columns();
    outlet.write_lines(|out| {
        for path in &fetched.planned {
            writeln!(out, "would receive {}", escape_invisible(&path.to_string_lossy()))?;
        }
        for path in &fetched.stored {
            writeln!(out, "received {}", escape_invisible(&path.to_string_lossy()))?;
        }
        write_deleted(out, args.dry_run, &fetched.deleted)?;
        if args.dry_run { Ok(()) } else { output::write_wrapped(out, columns, "", &summary.to_string()) }
    })
}
