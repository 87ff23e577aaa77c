//! `kelvin serve`: the files below a directory over HTTP.

use std::process::ExitCode;

use kelvin_serve::limits::Limits;
use kelvin_serve::looks::{Exposure, PATH};
use kelvin_serve::sending::chosen::{Choices, Class, Path, Peer, Sent};
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
    // Whoever reads an address goes on to use it: what may still fail comes before.
    let log = Log::over(std::io::stderr())?;
    output::print(|out| {
        [Some(address), resources].into_iter().flatten().try_for_each(|one| writeln!(out, "{}", Shown(one)))
    })?;
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
        chosen(&served.choices).iter().for_each(|line| log.line(About::Client, line));
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
    setup.limits = Limits { connections: args.connections, progress: args.min_progress, ..Limits::default() };
    Ok(setup)
}

/// What the server did, in one sentence.
fn told(served: &Served) -> String {
    let Served { requests, bytes, connections, refused, choices: _ } = served;
    let counted = |count: &u64, what: &str| format!("{count} {what}{}", if *count == 1 { "" } else { "s" });
    let [requests, bytes, connections] =
        [(requests, "request"), (bytes, "byte"), (connections, "connection")].map(|(count, what)| counted(count, what));
    let mut told = format!("answered {requests} with {bytes} over {connections}");
    if *refused > 0 {
        told += &format!("; {refused} more were turned away, because there were too many");
    }
    told
}

/// By which calls larger files went, a sentence for each kind of clients and size that there was.
fn chosen(choices: &Choices) -> Vec<String> {
    let of = |peer, class| {
        let mut ways = Path::ALL.map(|path| (path, choices.sent(peer, class, path)));
        ways.sort_by_key(|(_, sent)| std::cmp::Reverse(sent.answers));
        let said = |(path, sent): &(Path, Sent)| {
            let by = if *path == Path::Mmap { "from a mapping" } else { "by sendfile" };
            let time = |of_a_byte: f64| format!(" ({:.3} ms/MiB)", of_a_byte * f64::from(1 << 20) / 1e6);
            format!("{} {by}{}", sent.answers, sent.of_a_byte().map(time).unwrap_or_default())
        };
        let ways: Vec<String> = ways.iter().filter(|(_, sent)| sent.answers > 0).map(said).collect();
        let (size, place) = (size(class), if peer == Peer::Local { "on this host" } else { "on other hosts" });
        (!ways.is_empty()).then(|| format!("answers {size} to clients {place}: {}", ways.join(", ")))
    };
    let all = Peer::ALL.iter().flat_map(|&peer| Class::ALL.map(move |class| (peer, class)));
    let mut lines: Vec<String> = all.filter_map(|(peer, class)| of(peer, class)).collect();
    if lines.iter().any(|line| line.contains("ms/MiB")) {
        lines.push("ms/MiB: in trials, from the first call for an answer until its client sent more".into());
    }
    lines
}

/// The sizes of a class, in words.
fn size(class: Class) -> &'static str {
    match class {
        Class::Small => "of 16 to 128 KiB",
        Class::Medium => "of 128 KiB to 1 MiB",
        Class::Large => "of 1 MiB and more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_chosen_is_said_with_its_figures() {
        assert!(chosen(&Choices::default()).is_empty());
        let mut words = [0; Choices::WORDS];
        // Of clients here, large answers by either path, and a small one that nothing was compared of.
        words[12..18].copy_from_slice(&[70, 2 << 20, 1_000_000, 300, 1 << 20, 250_000]);
        words[0] = 1;
        let lines = [
            "answers of 16 to 128 KiB to clients on this host: 1 from a mapping",
            "answers of 1 MiB and more to clients on this host: 300 by sendfile (0.250 ms/MiB), 70 from a mapping (0.500 ms/MiB)",
            "ms/MiB: in trials, from the first call for an answer until its client sent more",
        ];
        assert_eq!(chosen(&Choices::of_words(words)), lines);
    }
}
