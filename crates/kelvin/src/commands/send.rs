//! `kelvin send`: files to a `kelvin receive`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use kelvin_transfer::Error;
use kelvin_transfer::message::Settings;
use kelvin_transfer::send::{Outgoing, Sender, Unsent};
use kelvin_transfer::summary::{Record, Summary};
use kelvin_wire::address::addresses;
use serde::Serialize;

use crate::byte_progress::Progress;
use crate::cli::SendArgs;
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

/// Sends the files, and prints what was moved. Nothing is sent unless all of them can be read.
pub fn send(args: &SendArgs) -> Done {
    let secret = super::secret(args.token_file.as_deref())?;
    let files = found(args)?;
    let addresses = addresses(&args.to).map_err(|why| Fault::new(&args.to, why))?;
    kelvin_sys::interrupt::watch()?;
    let settings = Settings { plain: args.plain, verify: !args.no_verify };
    let sender = Sender::connect(&addresses, &secret, settings).map_err(|error| Fault::new(&args.to, error))?;
    let progress = Progress::new(files.iter().map(Outgoing::bytes).sum());
    let sent = sender.send(&files, &|bytes| progress.show(bytes));
    drop(progress);
    match sent {
        Ok((summary, unsent)) => conclude(args, &summary, &unsent),
        Err(error) => {
            Fault::because(error).report();
            Ok(ExitCode::from(WITH_FAILURES))
        }
    }
}

/// All files, each with a name of its own.
fn found(args: &SendArgs) -> Result<Vec<Outgoing>, Fault> {
    let files = args.files.iter().map(|file| Outgoing::find(file).map_err(Fault::because));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut paths = BTreeMap::new();
    for (file, path) in files.iter().zip(&args.files) {
        if let Some(other) = paths.insert(file.name(), path) {
            let (one, other) = (other.display(), path.display());
            return Err(Fault::because(format!("{one} and {other} would arrive under one name: send them apart")));
        }
    }
    Ok(files)
}

/// What was moved and what was not, as data.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    moved: Record,
    unsent: Vec<BTreeMap<&'static str, String>>,
}

fn conclude(args: &SendArgs, summary: &Summary, unsent: &[Unsent]) -> Done {
    let said: Vec<_> = unsent.iter().map(|one| (one.path.display().to_string(), one.why.to_string())).collect();
    for ((path, why), one) in said.iter().zip(unsent) {
        // An error of a file names it.
        let fault = if matches!(one.why, Error::File(_)) { Fault::because(why) } else { Fault::new(path, why) };
        fault.report();
    }
    if args.json {
        let unsent = said.into_iter().map(|(file, why)| BTreeMap::from([("file", file), ("why", why)])).collect();
        output::print_json(&Answer { moved: summary.into(), unsent })?;
    } else {
        output::print(|out| writeln!(out, "{summary}"))?;
    }
    Ok(if unsent.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) })
}
