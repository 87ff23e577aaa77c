//! `kelvin receive`: files from `kelvin send` into a directory.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelvin_sys::kernel_end::Device;
use kelvin_transfer::decide::Destination;
use kelvin_transfer::receive::{Manner, Receiver};
use kelvin_transfer::session::{Event, standard_output};
use kelvin_transfer::summary::{Record, Summary};
use kelvin_transfer::tree::Root;
use kelvin_transfer::{Error, device};
use kelvin_wire::address::Shown;
use serde::Serialize;

use super::agent::PATIENCE;
use super::agent::log::{About, Log};
use crate::byte_progress;
use crate::cli::ReceiveArgs;
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output::{self, ERASE};

/// Receives until asked to stop, or from one sender. Prints its address and then what each sender moved on standard output, and
/// logs to standard error.
pub fn receive(args: &ReceiveArgs) -> Done {
    let secret = super::secret(args.token_file.as_deref())?;
    let moving = args.setup()?;
    let destination = destination(args)?;
    let is_output = matches!(destination, Destination::Output(_));
    kelvin_sys::interrupt::watch()?;
    // With fewer descriptors it takes fewer connections.
    let _ = kelvin_sys::process::raise_open_files();
    let log = Log::over(std::io::stderr())?;
    let device = args.device.then_some(Device::Receiver);
    let (shows_progress, failed) = (output::shows_progress(), AtomicBool::default());
    let teller = Arc::new(Teller { log, json: args.json, is_output, device, shows_progress, failed });
    let told = Arc::clone(&teller);
    let tell = Box::new(move |from: SocketAddr, event: Event| told.tell(from, &event));
    let once = args.once || is_output;
    let manner = Manner { overwrite: args.overwrite, once, moving, min_progress: args.min_progress };
    let is_over = || kelvin_sys::interrupt::requested().is_some();
    let served = if args.device {
        let receiver = device::Receiver::listen(args.listen, destination, secret, manner, tell);
        let receiver = receiver.map_err(|error| not_listening(args, error))?;
        teller.begin(receiver.address(), args)?;
        receiver.serve(is_over)
    } else {
        let receiver = Receiver::listen(args.listen, destination, secret, manner, tell);
        let receiver = receiver.map_err(|error| not_listening(args, error))?;
        teller.begin(receiver.address().map_err(Fault::because)?, args)?;
        receiver.serve(is_over)
    };
    teller.log.end(PATIENCE);
    served.map_err(Fault::because)?;
    let is_fault = once && teller.failed.load(Ordering::Relaxed);
    Ok(if is_fault { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS })
}

fn not_listening(args: &ReceiveArgs, error: Error) -> Fault {
    match error {
        Error::Wire(kelvin_wire::Error::Call { source, .. }) => {
            Fault::new(format!("--listen {}", Shown(args.listen)), source)
        }
        Error::Device(why) => Fault::new("--device", why),
        error => Fault::new("--listen", error),
    }
}

/// Where files go.
fn destination(args: &ReceiveArgs) -> Result<Destination, Fault> {
    match args.dir.as_deref() {
        None => Ok(Destination::Nothing),
        Some(output) if output == Path::new("-") => {
            let output = standard_output().map_err(|error| Fault::new(output::UNWRITTEN, error))?;
            Ok(Destination::Output(output))
        }
        Some(directory) => Ok(Destination::Directory(Root::open(directory).map_err(Fault::because)?)),
    }
}

/// What a sender moved, as data.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    moved: Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'static str>,
}

/// Says what happens.
struct Teller {
    log: Log,
    json: bool,
    /// Whether standard output is what arrives, and all else goes to the log.
    is_output: bool,
    /// The device that the socket belongs to, if it is in the kernel.
    device: Option<Device>,
    /// Whether somebody reads how far a sender is.
    shows_progress: bool,
    /// Whether a file or a sender failed.
    failed: AtomicBool,
}

impl Teller {
    fn begin(&self, address: SocketAddr, args: &ReceiveArgs) -> Result<(), Fault> {
        let shown = Shown(address).to_string();
        if self.is_output {
            self.log.line(About::Client, &shown);
        } else if self.json {
            output::print_json(&std::collections::BTreeMap::from([("listening", &shown)]))?;
        } else {
            output::print(|out| writeln!(out, "{shown}"))?;
        }
        let whom = if args.token_file.is_some() { "senders with the secret" } else { "any process on this host" };
        let until = if args.once || self.is_output { "one of them is served" } else { "Ctrl-C" };
        self.log.line(About::Client, &format!("receiving from {whom} until {until}"));
        Ok(())
    }

    fn tell(&self, from: SocketAddr, event: &Event) {
        let (about, what) = match event {
            Event::Came => (About::Client, "connected".to_owned()),
            Event::Kept(_) => return,
            Event::Unkept(_, why @ Error::File(_)) => (About::Client, why.to_string()),
            Event::Unkept(path, why) => (About::Client, format!("{}: {why}", path.display())),
            Event::Left(path) => (About::Client, format!("{}: a part is left, to be gone on with", path.display())),
            Event::Done(summary) => return self.done(from, summary),
            Event::Moving { bytes, of, elapsed } => {
                if self.shows_progress {
                    self.log.passing(&format!("{}: {}", Shown(from), byte_progress::line(*bytes, *of, *elapsed)));
                }
                return;
            }
            Event::Fault(error) => (About::Client, error.to_string()),
            Event::TurnedAway(error) => (About::Unauthenticated, error.to_string()),
        };
        // One that found no place is not the one that is served.
        if matches!(event, Event::Unkept(..) | Event::Fault(_))
            && !matches!(event, Event::Fault(Error::Wire(kelvin_wire::Error::Busy { .. })))
        {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.log.line(about, &format!("{}: {what}", Shown(from)));
    }

    fn done(&self, from: SocketAddr, summary: &Summary) {
        if summary.failed > 0 {
            self.failed.store(true, Ordering::Relaxed);
        }
        if self.shows_progress && !self.is_output && output::is_terminal() {
            // A line of progress on the same terminal is not to stand before it.
            let _ = output::print_as_it_is(|out| out.write_all(ERASE.as_bytes()));
        }
        let printed = if self.is_output {
            self.log.line(About::Client, &format!("{summary}{}", super::in_kernel(self.device)));
            Ok(())
        } else if self.json {
            output::print_json(&Answer { moved: summary.into(), device: self.device.map(Device::path) })
        } else {
            output::print(|out| writeln!(out, "{summary}{}", super::in_kernel(self.device)))
        };
        if let Err(fault) = printed {
            self.log.line(About::Client, &format!("{}: {fault}", Shown(from)));
        }
    }
}
