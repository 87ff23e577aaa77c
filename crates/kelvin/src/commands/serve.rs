//! `kelvin serve`: the files below a directory over HTTP.

use std::process::ExitCode;

use kelvin_serve::limits::Limits;
use kelvin_serve::looks::{Exposure, PATH};
use kelvin_serve::{Access, Error, Model, Served, Server, Setup};
use kelvin_sys::interrupt;
use kelvin_wire::address::{InUrl, Shown};

use super::agent::PATIENCE;
use super::agent::log::{About, Log};
use crate::cli::ServeArgs;
use crate::fault::{Done, Fault};
use crate::output;
use crate::sockets::find_congestion_control;

/// Threads of a pool, unless others are asked for: as many connections are served at one time.
const POOL: usize = 64;

/// Serves until asked to stop. Prints its address on standard output, and what it did on standard error.
pub fn serve(args: &ServeArgs) -> Done {
    interrupt::watch_server()?;
    // With fewer descriptors it serves fewer clients, and says so.
    let _ = kelvin_sys::process::raise_open_files();
    let server = listen(args)?;
    let address = server.address().map_err(Fault::because)?;
    let resources = server.address_for_looks().map_err(Fault::because)?;
    output::print(|out| {
        [Some(address), resources].into_iter().flatten().try_for_each(|one| writeln!(out, "{}", Shown(one)))
    })?;
    let log = Log::over(std::io::stderr())?;
    let most = server.connections();
    log.line(
        About::Client,
        &format!(
            "serving {} at http://{}/, at most {most} connections, until Ctrl-C",
            args.root.display(),
            InUrl(address)
        ),
    );
    if let Some(resources) = resources {
        log.line(
            About::Client,
            &format!("telling whoever has the token what it uses at http://{}{PATH}", InUrl(resources)),
        );
    }
    let reopener = server.reopener();
    let served = server.serve(|| {
        if interrupt::take_reopen_request() {
            let root = args.root.display();
            log.line(
                About::Client,
                &match reopener.reopen() {
                    Ok(()) => format!("opened {root} anew"),
                    Err(error) => format!("serving what was opened before: {error}"),
                },
            );
        }
        interrupt::requested().is_some()
    });
    if let Ok(served) = &served {
        log.line(About::Client, &told(served));
    }
    log.end(PATIENCE);
    served.map(|_| ExitCode::SUCCESS).map_err(Fault::because)
}

fn listen(args: &ServeArgs) -> Result<Server, Fault> {
    let access = Access { names: args.host.clone(), exposure: exposure(args)? };
    args.congestion_control.as_deref().map(find_congestion_control).transpose()?;
    let listening = Server::listen_with(args.listen, &args.root, setup(args)?, access);
    let server = listening.map_err(|error| match error {
        error @ Error::Sending { .. } => Fault::new(format!("--send {}", args.send), error),
        error @ Error::Ring { .. } => Fault::new(format!("--model {}", args.model), error),
        Error::Listen(source) => Fault::new(format!("--listen {}", Shown(args.listen)), source),
        Error::ListenForLooks(source) => {
            Fault::new(format!("--resources-listen {}", Shown(args.address_of_resources())), source)
        }
        error => Fault::because(error),
    })?;
    args.congestion_control.as_deref().map(|name| server.send_by(name)).transpose().map_err(Fault::because)?;
    Ok(server)
}

/// Who may ask what this host and the server have used.
fn exposure(args: &ServeArgs) -> Result<Option<Exposure>, Fault> {
    if !args.expose_resources {
        return Ok(None);
    }
    let secret = super::secret(args.token_file.as_deref())?;
    let allows = Box::new(move |token: &str| secret.is(token.as_bytes()));
    Ok(Some(Exposure { address: args.address_of_resources(), directory: args.root.clone(), allows }))
}

fn setup(args: &ServeArgs) -> Result<Setup, Fault> {
    if matches!(args.model, Model::Fork | Model::Thread) && args.threads.is_some() {
        let why = format!("the model {} has one for each connection: give --connections", args.model);
        return Err(Fault::new("--threads", why));
    }
    let usual = || match args.model {
        Model::Pool => POOL,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut setup = Setup::of(args.threads.map_or_else(usual, |threads| threads as usize));
    setup.model = args.model;
    (setup.sending, setup.lists) = (args.send, args.index);
    setup.limits = Limits { connections: args.connections, ..Limits::default() };
    Ok(setup)
}

/// What the server did, in one sentence.
fn told(served: &Served) -> String {
    let Served { requests, bytes, connections, refused } = served;
    let counted = |count: &u64, what: &str| format!("{count} {what}{}", if *count == 1 { "" } else { "s" });
    let [requests, bytes, connections] =
        [(requests, "request"), (bytes, "byte"), (connections, "connection")].map(|(count, what)| counted(count, what));
    let mut told = format!("answered {requests} with {bytes} over {connections}");
    if *refused > 0 {
        told += &format!("; {refused} more were turned away, because there were too many");
    }
    told
}
