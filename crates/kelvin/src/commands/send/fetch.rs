//! `kelvin send -e` from a remote host: the shell there starts the sender, and this end receives.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kelvin_core::text::escape_invisible;
use kelvin_transfer::Error;
use kelvin_transfer::message::SessionSettings;
use kelvin_transfer::receive::ReceiverOptions;
use kelvin_transfer::remote_shell::{open_directory, receive};
use kelvin_transfer::session::SessionEvent;
use kelvin_transfer::summary::TransferSummary;
use serde::Serialize;

use super::remote_shell::RemoteShell;
use crate::answer::AnswerOutlet;
use crate::cli::{RemotePath, SendArgs};
use crate::cli_error::{CliError, CmdResult};
use crate::progress::{StatusLine, byte_progress_text};

/// What was moved, and in a dry run what would be, as data.
#[derive(Serialize)]
struct FetchSummary<'a> {
    #[serde(flatten)]
    moved: &'a TransferSummary,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    planned: Vec<String>,
}

/// Fetches files of one host into a directory here, and prints what was moved.
pub fn fetch(args: &SendArgs, sources: &[RemotePath], directory: &Path) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    if args.name.is_some() {
        bail!("--name: it names what comes from standard input: files keep their names");
    }
    let Some(RemotePath { host, .. }) = sources.first() else { bail!("-e: name a file of a host, HOST:FILE") };
    kelvin_sys::stop_signals::install_handlers()?;
    let (shell, stream) = RemoteShell::start(&args.remote_shell, host, &sender_arguments(args, sources))?;
    let options = ReceiverOptions { overwrite: args.remote_shell.overwrite, ..ReceiverOptions::default() };
    let (progress, planned, failed) = (StatusLine::after_delay(), RefCell::new(Vec::<PathBuf>::new()), RefCell::new(0));
    let on_event = |event| match event {
        SessionEvent::Planned(path) => planned.borrow_mut().push(path),
        SessionEvent::Progress { bytes, total, elapsed } => {
            progress.show_at_intervals(|_| byte_progress_text(bytes, total, elapsed));
        }
        // The other end prints what it could not send.
        SessionEvent::FileFailed(_, Error::Refused(_)) => *failed.borrow_mut() += 1,
        SessionEvent::FileFailed(path, why) => {
            *failed.borrow_mut() += 1;
            let fault =
                if let Error::File(why) = why { CliError::msg(why) } else { CliError::new(path.display(), why) };
            fault.report();
        }
        _ => {}
    };
    let outcome = receive(stream, options, |settings: &SessionSettings| open_directory(directory, settings), &on_event);
    drop(progress);
    shell.finish();
    let summary = match outcome {
        Ok(summary) => summary,
        Err(error @ Error::File(_)) => return Err(error.into()),
        Err(error) => {
            CliError::new(host, error).report();
            return Ok(false);
        }
    };
    print_summary(args, outlet, &summary, &planned.into_inner())?;
    Ok(summary.sent.failed == 0 && failed.into_inner() == 0)
}

/// The command line of the other end: what this one was asked for, as far as a sender does it.
fn sender_arguments(args: &SendArgs, sources: &[RemotePath]) -> Vec<OsString> {
    let SendArgs { recursive, links, owners, xattrs, update, sync, no_verify, dry_run, ack, limit, .. } = *args;
    let flags = [
        ("--stdio", true),
        ("--recursive", recursive),
        ("--links", links),
        ("--owners", owners),
        ("--xattrs", xattrs),
        ("--update", update),
        ("--sync", sync),
        ("--no-verify", no_verify),
        ("--dry-run", dry_run),
        ("--ack=per-file", ack),
    ];
    let flags = flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| OsString::from(flag));
    let limit = limit.map(|bytes| OsString::from(format!("--limit={bytes}")));
    let paths = sources.iter().map(|source| source.path.clone());
    [OsString::from("send")].into_iter().chain(flags).chain(limit).chain(["--".into()]).chain(paths).collect()
}

fn print_summary(
    args: &SendArgs,
    outlet: AnswerOutlet,
    summary: &TransferSummary,
    planned: &[PathBuf],
) -> Result<(), CliError> {
    if outlet.is_json {
        let planned = planned.iter().map(|path| path.display().to_string()).collect();
        return outlet.write_json(&FetchSummary { moved: summary, planned });
    }
    outlet.write_lines(|out| {
        for path in planned {
            writeln!(out, "would receive {}", escape_invisible(&path.to_string_lossy()))?;
        }
        if args.dry_run { Ok(()) } else { writeln!(out, "{summary}") }
    })
}
