//! `kelvin load`: requests to an HTTP server, and how long their answers take.

mod show;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_load::gate::Objective;
use kelvin_load::pattern::Pattern;
use kelvin_load::replay::Replay;
use kelvin_load::request::{Form, header, method};
use kelvin_load::schedule::Think;
use kelvin_load::search::Search;
use kelvin_load::target::Target;
use kelvin_load::verify::{Known, Verify};
use kelvin_load::{Demand, Peer, Setup, files, tls};
use kelvin_model::load::{Load, RateSearch};

use crate::cli::{LoadArgs, VerifyArg};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;

/// The measured time, unless another one is asked for.
const DURATION: Duration = Duration::from_secs(10);

/// The same for each rate of a search.
const DURATION_OF_A_TRY: Duration = Duration::from_secs(5);

/// Longest warm-up that is not asked for.
const LONGEST_WARM_UP: Duration = Duration::from_secs(10);

/// Descriptors besides those of connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Measures the load and prints what came of it.
pub fn load(args: &LoadArgs) -> Done {
    let mut setup = setup(args)?;
    if let Some(log) = &args.replay {
        replay(args, log, &mut setup)?;
    }
    if let Some(cpu) = args.cpu {
        kelvin_sys::cpu::pin(&[cpu]).map_err(|error| Fault::new(format!("--cpu {cpu}"), error))?;
    }
    allow_connections(setup.demand.connections())?;
    // Until it is reached there is nothing to be told of, and a signal ends the program at once.
    let peer = Peer::reach(&setup).map_err(Fault::because)?;
    kelvin_sys::interrupt::watch()?;
    if let Some(objective) = args.slo {
        return search(args, &peer, setup, objective);
    }
    let load = measure(&setup, &peer)?;
    if args.json {
        output::print_json(&load)?;
    } else {
        output::print(|out| show::load(&load, out))?;
    }
    Ok(conclude(args, &load))
}

/// Searches the highest rate that keeps the objective.
fn search(args: &LoadArgs, peer: &Peer, mut setup: Setup, objective: Objective) -> Done {
    let (mut search, mut tries) = (Search::default(), Vec::new());
    let mut is_generator_limit = false;
    while let Some(rate) = search.next_rate() {
        setup.demand = Demand::Rate { rate, spread: args.spread.into(), connections: args.connections };
        let load = measure(&setup, peer)?;
        let is_kept = objective.is_kept(&load);
        is_generator_limit = !is_kept && load.generator.limit.is_some();
        let is_over = is_generator_limit || load.interrupted.is_some();
        show::attempt(rate, is_kept, &load);
        tries.push(load);
        if is_over {
            break;
        }
        search.tell(rate, is_kept);
    }
    let (kept, missed) = (search.kept(), search.missed());
    tell(args, &RateSearch { objective: objective.to_string(), kept, missed, is_generator_limit, tries })
}

/// Prints what a search found.
fn tell(args: &LoadArgs, found: &RateSearch) -> Done {
    if args.json {
        output::print_json(found)?;
    } else {
        output::print(|out| show::search(found, out))?;
    }
    let is_whole = found.kept.is_some() && found.tries.iter().all(|load| load.interrupted.is_none());
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) })
}

fn measure(setup: &Setup, peer: &Peer) -> Result<Load, Fault> {
    let progress = show::Progress::new(setup.duration);
    kelvin_load::load(setup, peer, &mut |series| progress.show(series)).map_err(Fault::because)
}

/// Says which conditions were met.
fn conclude(args: &LoadArgs, load: &Load) -> ExitCode {
    let missed: Vec<String> = args.fail_on.iter().filter_map(|gate| gate.missed(load)).collect();
    missed.iter().for_each(|why| output::remark(format_args!("kelvin: --fail-on {why}")));
    let is_good = missed.is_empty() && load.requests > 0 && load.interrupted.is_none();
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) }
}

/// What the arguments ask for.
fn setup(args: &LoadArgs) -> Result<Setup, Fault> {
    let (target, paths) = target(args)?;
    let (verify, known) = right_bodies(args, &paths)?;
    let tls = target.secure.then(|| tls::config(args.ca.as_deref())).transpose();
    let usual = if args.slo.is_some() { DURATION_OF_A_TRY } else { DURATION };
    let duration = args.duration.unwrap_or(usual);
    let warm_up = args.warm_up.unwrap_or_else(|| (duration / 10).min(LONGEST_WARM_UP));
    Ok(Setup {
        tls: tls.map_err(|why| Fault::new("--ca", why))?,
        target,
        paths,
        pattern: args.pattern,
        form: form(args)?,
        demand: demand(args),
        warm_up: if args.no_warm_up { Duration::ZERO } else { warm_up },
        duration,
        timeout: args.timeout,
        seed: args.seed,
        verify,
        known,
        // With one CPU the server would have none.
        spin: kelvin_sys::cpu::allowed()?.len() > 1,
    })
}

/// What of bodies is compared, and the right ones that are known before.
fn right_bodies(args: &LoadArgs, paths: &[String]) -> Result<(Verify, Vec<Option<Known>>), Fault> {
    let verify = match args.verify {
        None => Verify::Nothing,
        Some(VerifyArg::Length) => Verify::Length,
        Some(VerifyArg::Content) => Verify::Content,
    };
    let known = match &args.root {
        None => vec![None; paths.len()],
        Some(root) => files::known(root, paths, verify).map_err(|why| Fault::new("--root", why))?,
    };
    Ok((verify, known))
}

/// Has the setup ask for what a log has.
fn replay(args: &LoadArgs, log: &Path, setup: &mut Setup) -> Result<(), Fault> {
    let wrong = |why: &dyn std::fmt::Display| Fault::new(format!("--replay {}", log.display()), why);
    let text = fs::read(log).map_err(|error| wrong(&error))?;
    let replay = Replay::read(&String::from_utf8_lossy(&text), args.speed).map_err(|why| wrong(&why))?;
    if replay.left_out > 0 {
        let count = kelvin_model::units::count(replay.left_out);
        output::remark(format_args!("kelvin: {count} lines of {} are no GET requests and are left out", log.display()));
    }
    setup.duration = args.duration.unwrap_or_else(|| replay.duration());
    setup.warm_up = Duration::ZERO;
    setup.pattern = Pattern::Sequence;
    setup.known = vec![None; replay.paths.len()];
    setup.paths = replay.paths;
    setup.demand = Demand::Log { times: replay.times.into(), connections: args.connections };
    Ok(())
}

/// The server and the paths of its files.
fn target(args: &LoadArgs) -> Result<(Target, Vec<String>), Fault> {
    let Some(list) = &args.files else {
        let target = args.url.clone().ok_or_else(|| Fault::because("give a URL, or --files and a list of them"))?;
        let path = target.path.clone();
        return Ok((target, vec![path]));
    };
    let wrong = |why: &dyn std::fmt::Display| Fault::new(format!("--files {}", list.display()), why);
    let text = fs::read_to_string(list).map_err(|error| wrong(&error))?;
    files::list(&text, args.url.clone()).map_err(|why| wrong(&why))
}

fn demand(args: &LoadArgs) -> Demand {
    let spread = args.spread.into();
    if args.slo.is_some() {
        return Demand::Rate { rate: 1.0, spread, connections: args.connections };
    }
    match args.rate {
        Some(rate) => Demand::Rate { rate, spread, connections: args.connections },
        None => {
            let mean = args.think.unwrap_or_default().as_nanos() as f64;
            Demand::Users { users: args.users.unwrap_or(1), think: Think { mean, spread } }
        }
    }
}

/// What is sent with every request.
fn form(args: &LoadArgs) -> Result<Form, Fault> {
    let headers: Result<Vec<_>, Fault> =
        args.headers.iter().map(|line| header(line).map_err(|why| Fault::new(format!("-H '{line}'"), why))).collect();
    let body = match args.body.as_deref().map(|body| (body, body.strip_prefix('@'))) {
        None => Vec::new(),
        Some((_, Some(file))) => fs::read(file).map_err(|error| Fault::new(format!("--body @{file}"), error))?,
        Some((body, None)) => body.as_bytes().to_vec(),
    };
    let method = method(&args.method).map_err(|why| Fault::new(format!("--method {}", args.method), why))?;
    Ok(Form { method, headers: headers?, body })
}

/// Has the system allow so many connections.
fn allow_connections(connections: u32) -> Result<(), Fault> {
    let allowed = kelvin_sys::process::raise_open_files()?;
    let wanted = u64::from(connections) + OTHER_DESCRIPTORS;
    if wanted > allowed {
        let most = allowed.saturating_sub(OTHER_DESCRIPTORS);
        let limit =
            format!("{connections} connections need {wanted} descriptors and {allowed} are allowed (ulimit -n)");
        return Err(Fault::because(format!("{limit}: ask for at most {most} by --users or --connections")));
    }
    Ok(())
}
