//! `kelvin send`: files to a `kelvin receive`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kelvin_sys::kernel_end::Device;
use kelvin_transfer::bare::Connection;
use kelvin_transfer::channel::Stream;
use kelvin_transfer::message::Settings;
use kelvin_transfer::moving::SendSetup;
use kelvin_transfer::name::Name;
use kelvin_transfer::send::{Manner, Moments, Sender, Sent, Unsent};
use kelvin_transfer::source::{Attributes, Collection, Keep, left_out};
use kelvin_transfer::summary::Record;
use kelvin_transfer::{Error, device};
use kelvin_wire::address::addresses;
use serde::Serialize;

use crate::byte_progress::Progress;
use crate::cli::{Ack, Lasting, SendArgs, Streams};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

/// Sends the files, and prints what was moved. Nothing is sent unless all that were named can be read.
pub fn send(args: &SendArgs) -> Done {
    let secret = super::secret(args.token_file.as_deref())?;
    let (files, to) = args.operands()?;
    let moving = args.setup()?;
    let collection = collected(args, &files)?;
    let addresses = addresses(to).map_err(|why| Fault::new(to, why))?;
    kelvin_sys::interrupt::watch()?;
    let manner = manner(args, moving, &collection);
    let sent = if args.device {
        carry(device::connect(&addresses, &secret, manner), to, collection)?
    } else {
        carry(Sender::connect(&addresses, &secret, manner), to, collection)?
    };
    match sent {
        Ok(sent) => conclude(args, &sent),
        Err(error @ Error::RefusedAll(_)) => Err(Fault::new(to, error)),
        Err(error) => {
            Fault::because(error).report();
            Ok(ExitCode::from(WITH_FAILURES))
        }
    }
}

/// Sends all by a sender that has connected.
fn carry<S: Stream>(
    connected: Result<Sender<S>, Error>,
    to: &str,
    collection: Collection,
) -> Result<Result<Sent, Error>, Fault> {
    let sender = connected.map_err(|error| match error {
        Error::Device(why) => Fault::new("--device", why),
        error => Fault::new(to, error),
    })?;
    let progress = Progress::begin();
    Ok(sender.send(collection, &|bytes, of| progress.show(bytes, of)))
}

fn manner(args: &SendArgs, moving: Option<SendSetup>, collection: &Collection) -> Manner {
    let SendArgs { plain, no_verify, sync, update, dry_run, limit, .. } = *args;
    // Where there is room for it however much it is, not all must be found before the first is sent.
    let (bytes, at_most) =
        if collection.is_whole() { (collection.stored(), None) } else { (None, collection.at_most()) };
    let connection = match args.connection {
        Lasting::Persistent => Connection::Persistent,
        Lasting::PerFile => Connection::PerFile,
    };
    let (verify, streams) = (!no_verify, args.streams.announced());
    // What goes by a method that was asked for goes over one connection.
    let choose = (args.streams == Streams::Auto && moving.is_none()).then_some(Moments::USUAL);
    let settings = Settings { plain, verify, sync, update, dry_run, bytes, at_most, streams, connection };
    Manner { settings, acknowledge: args.ack == Ack::PerFile, limit, moving, choose }
}

/// Files that are found before the receiver is asked for anything: so few are found at once.
const FOUND_FIRST: usize = 256;

/// All that is named, each with a name of its own; what is in directories only as far as it must be known before it is sent.
fn collected(args: &SendArgs, files: &[PathBuf]) -> Result<Collection, Fault> {
    if files == [PathBuf::from("-")] {
        kelvin_sys::standard::input().map_err(|error| Fault::new(output::UNREAD, error))?;
        let name = args.name.as_deref().unwrap_or(OsStr::new("stdin"));
        return Collection::of_input(name).map_err(|error| Fault::new("--name", error));
    }
    if args.name.is_some() {
        return Err(Fault::new("--name", "it names what comes from standard input: files keep their names"));
    }
    let mut paths = BTreeMap::new();
    for path in files {
        if path == Path::new("-") {
            return Err(Fault::new("-", "standard input is sent alone, without other files"));
        }
        // What has no name is refused below.
        let Ok(name) = Name::of(path) else { continue };
        if let Some(other) = paths.insert(name, path) {
            let (one, other) = (other.display(), path.display());
            return Err(Fault::because(format!("{one} and {other} would arrive under one name: send them apart")));
        }
    }
    let attributes = match (args.xattrs, args.dry_run) {
        (true, _) => Attributes::Kept,
        (false, true) => Attributes::CountedAtOnce,
        (false, false) => Attributes::CountedWhenSent,
    };
    let keep = Keep { recursive: args.recursive, links: args.links, owners: args.owners, attributes };
    let mut found = Collection::begun(files, keep).map_err(Fault::because)?;
    let is_usual = args.streams.announced() == 1 && args.connection == Lasting::Persistent;
    let may_be_found_later = is_usual && !args.update && !args.dry_run && !args.device && found.at_most().is_some();
    let first = if may_be_found_later { FOUND_FIRST } else { usize::MAX };
    found.find(first).map_err(Fault::because)?;
    Ok(found)
}

/// What was moved and what was not, as data.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    moved: Record,
    unchanged: u64,
    unsent: Vec<BTreeMap<&'static str, String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    planned: Vec<String>,
    /// Files that state no bytes and have some.
    #[serde(skip_serializing_if = "is_none")]
    unstated: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'static str>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn conclude(args: &SendArgs, sent: &Sent) -> Done {
    let Sent { summary, unsent, unchanged, planned, unstated, left_out: left } = sent;
    let left = left_out(left);
    let device = args.device.then_some(Device::Sender);
    unsent.iter().for_each(report);
    if args.json {
        let why =
            |one: &Unsent| BTreeMap::from([("file", one.path.display().to_string()), ("why", one.why.to_string())]);
        let unsent = unsent.iter().map(why).collect();
        let planned = planned.iter().map(|path| path.display().to_string()).collect();
        let (moved, unchanged, device) = (summary.into(), *unchanged, device.map(Device::path));
        output::print_json(&Answer { moved, unchanged, unsent, planned, unstated: *unstated, left_out: left, device })?;
    } else {
        output::print(|out| {
            for path in planned {
                writeln!(out, "would send {}", shown(path.as_os_str()))?;
            }
            if *unchanged > 0 {
                writeln!(out, "unchanged: {}", kelvin_model::units::files(*unchanged))?;
            }
            if let Some(left) = &left {
                writeln!(out, "{left}")?;
            }
            if *unstated > 0 {
                writeln!(
                    out,
                    "read until their end, since they state a size of 0 bytes: {}",
                    kelvin_model::units::files(*unstated)
                )?;
            }
            if args.dry_run { Ok(()) } else { writeln!(out, "{summary}{}", super::in_kernel(device)) }
        })?;
    }
    Ok(if unsent.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) })
}

fn shown(path: &OsStr) -> String {
    kelvin_model::text::visible(&path.to_string_lossy()).into_owned()
}

fn report(one: &Unsent) {
    // An error of a file names it.
    let fault = match &one.why {
        Error::File(why) => Fault::because(why),
        why => Fault::new(one.path.display(), why),
    };
    fault.report();
}
